"""Bursts: an application's demand left the band that its plan was made for. Pure.

Arrivals are counted in slots of :data:`SLOT_S`. The core that leads sees all queries, and judges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from workers.protocol.control import Burst
from workers.protocol.specs import Band

#: seconds of a slot
SLOT_S = 0.1
#: slots of a second
SECOND = 10
#: slots of the shortest window, which may show a surge
SHORT = 3
#: slots that show a lasting rise
MEDIUM = 30
#: slots that show that demand fell
LONG = 99
#: slots kept at least, more than the longest window
KEPT = 128
#: queries in a window from which its rate counts
MIN_QUERIES = 5
#: part by which a rate moves on before the same application is reported again
STEP = 0.2


def slot_at(now: float) -> int:
    return int(now / SLOT_S)


class Slots:
    """Rows and queries of one application by slot; at least the newest :data:`KEPT`."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, list[int]] = {}

    def add(self, slot: int, rows: int, queries: int = 1) -> None:
        counts = self._counts.get(slot)
        if counts is None:
            counts = self._counts[slot] = [0, 0]
            if len(self._counts) > 2 * KEPT:
                oldest = max(self._counts) - KEPT
                self._counts = {slot: counts for slot, counts in self._counts.items() if slot > oldest}
        counts[0] += rows
        counts[1] += queries

    def before(self, end: int, slots: int) -> tuple[int, int]:
        """(rows, queries) of the ``slots`` slots before slot ``end``."""
        arrivals = [counts for counts in map(self._counts.get, range(end - slots, end)) if counts is not None]
        return sum([rows for rows, _ in arrivals]), sum([queries for _, queries in arrivals])


class BurstDetector:
    """Arrivals of the plan's applications, and the rule by which a new plan is due.

    Above the band: the rate of the last second, from at least :data:`MIN_QUERIES` queries, is higher than ``high``; or,
    sooner, that of the last 0.3 s is higher than ``surge``; or, later, that of the last 3 s is higher than ``rise``.
    Below: the rate of the last 10 s is lower than ``low``. Each application is reported at most once a second, and
    again for the same plan only when its rate moved on by another :data:`STEP` in the same direction.
    """

    def __init__(self) -> None:
        self._bands: Mapping[str, Band] = {}
        self._plan_version = 0
        self._since = 0
        self._arrivals: dict[str, Slots] = {}
        self._reported: dict[str, tuple[int, float, int]] = {}

    def set_plan(self, bands: Mapping[str, Band], plan_version: int, now: float) -> None:
        if plan_version != self._plan_version:
            self._reported = {name: (at, 0.0, 0) for name, (at, _, _) in self._reported.items()}
        self._bands, self._plan_version = bands, plan_version
        self._arrivals = {name: slots for name, slots in self._arrivals.items() if name in bands}
        self.restart(now)

    def restart(self, now: float) -> None:
        """Report no fall until counts before now are out of the window."""
        self._since = slot_at(now)

    def arrived(self, application: str, rows: int, now: float) -> None:
        if application in self._bands:
            known = self._arrivals.get(application)
            if known is None:
                known = self._arrivals[application] = Slots()
            known.add(slot_at(now), rows)

    @staticmethod
    def slot_ends_in(now: float) -> float:
        return (slot_at(now) + 1) * SLOT_S - now

    def check(self, now: float) -> list[Burst]:
        """Bursts by the arrivals here; to be called at the end of each slot."""
        end, bursts = slot_at(now), []
        for application, band in self._bands.items():
            outside = self._outside(application, band, end)
            if outside is None:
                continue
            rate, direction = outside
            last_at, last_rate, last_direction = self._reported.get(application, (-math.inf, 0.0, 0))
            if end - last_at < SECOND:
                continue
            # For the same plan again only once the rate has moved on.
            next_rate = last_rate * (1 + direction * STEP)
            if direction == last_direction and direction * (rate - next_rate) <= 0:
                continue
            self._reported[application] = (end, rate, direction)
            bursts.append(Burst(application=application, rate=rate, plan_version=self._plan_version))
        return bursts

    def _outside(self, application: str, band: Band, end: int) -> tuple[float, int] | None:
        arrivals = self._arrivals.get(application) or Slots()
        for slots, limit in ((SECOND, band.high), (SHORT, band.surge), (MEDIUM, band.rise)):
            # The plan includes earlier demand: a lasting rise is judged by later arrivals only.
            if limit <= 0 or (slots > SECOND and end - self._since < slots):
                continue
            rows, queries = arrivals.before(end, slots)
            rate = rows / (slots * SLOT_S)
            if rate > limit and queries >= MIN_QUERIES:
                return rate, 1
        if end - self._since >= LONG:
            rate = arrivals.before(end, LONG)[0] / (LONG * SLOT_S)
            if rate < band.low:
                return rate, -1
        return None
