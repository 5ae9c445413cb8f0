"""The part of queries' time for which devices are not booked, as they have slipped of late. Pure.

In overload devices are booked for all the time that queries have. Then one that takes a little longer than expected
makes queries at the end of what is booked late, and they are refused long after they came, when at once would have been
better: their clients could have asked elsewhere. So each time that such queries are given up a little more time is
kept free on devices that are busy, and by and by less again. Where devices keep their times nothing is.
"""

from __future__ import annotations

from ..options import INF

#: of a query's time: what is kept free more each time that some were given up, and the most that is
STEP = 0.02
MOST = 0.25
#: and by how much that falls in a second
EASES = 0.005


class Leeway:
    """Of one application."""

    def __init__(self) -> None:
        self._part, self._at = 0.0, -INF

    def given_up(self, now: float) -> None:
        """Queries that were booked have to be refused. Those of one moment count once: they have one cause."""
        if now > self._at:
            part = self.part(now) + STEP
            self._part, self._at = (part if part < MOST else MOST), now

    def part(self, now: float) -> float:
        """The part of a query's time that is not to be booked (0 to :data:`MOST`)."""
        if not self._part:
            return 0.0
        part = self._part - EASES * (now - self._at)
        if part > 0.0:
            return part
        self._part = 0.0
        return 0.0
