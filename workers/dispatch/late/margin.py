"""The admission margin: time in which busy devices are not scheduled. Pure.

The margin is a part of queries' time. Under overload devices are scheduled up to the SLO. If one is a little slower
than expected, its last queries are refused long after they arrived, when their clients can no longer ask elsewhere.
Each such refusal raises the margin, which decays with time; where devices keep their times there is none.
"""

from __future__ import annotations

from ..options import INF

#: of a query's time: the rise at each late refusal, and the largest margin
STEP = 0.02
LARGEST = 0.25
#: decay a second
DECAY_PER_S = 0.005


class AdmissionMargin:
    """The margin of one class."""

    def __init__(self) -> None:
        self._fraction, self._at = 0.0, -INF

    def record_refusal(self, now: float) -> None:
        """Raise the margin, because scheduled queries were refused.

        Refusals of one moment count once: they have one cause.
        """
        if now > self._at:
            self._fraction, self._at = min(self.fraction(now) + STEP, LARGEST), now

    def fraction(self, now: float) -> float:
        """The margin as a part of a query's time (0 to :data:`LARGEST`)."""
        if self._fraction <= DECAY_PER_S * (now - self._at):
            self._fraction = 0.0
            return 0.0
        return self._fraction - DECAY_PER_S * (now - self._at)
