"""How soon the next query is to be expected: the times between arrivals. Pure."""

from __future__ import annotations

from ..options import INF

#: how much an arrival counts in the running mean, and the longest time, in seconds, that counts
WEIGHT = 0.1
LONGEST_S = 1.0
#: by what factor the median moves with an arrival; by its square with the next one on the same side, and so on up to a
#: most: it is soon where it belongs, and stays there within a step
STEP = 1.1
MOST_STEP = STEP**8
#: below what, in seconds, nobody asks for the median: a wait that is shorter is none
SHORTEST_S = 0.001
#: more of the largest steps than lead from the longest time to the shortest
MOST_STEPS = 10


class Gaps:
    """Seconds between two arrivals: ``mean_s`` and ``median_s``, both running; company is expected at first.

    Where queries come in clumps the mean says when the next clump is due, and the median whether this one goes on."""

    def __init__(self) -> None:
        self.mean_s = 0.0
        self.median_s = SHORTEST_S
        self._last_at = INF
        self._step = 1.0

    def arrived(self, count: int, now: float) -> None:
        """So many queries arrived at once."""
        since = now - self._last_at
        self._last_at = now
        if since < 0.0:
            since = 0.0
        elif since > LONGEST_S:
            since = LONGEST_S
        weight = WEIGHT * count
        self.mean_s += (weight if weight < 1.0 else 1.0) * (since / count - self.mean_s)
        step, median_s = self._step, self.median_s
        for _ in range(count if count <= MOST_STEPS else MOST_STEPS + 1):
            if since > median_s:
                step = STEP if step <= 1.0 else min(step * step, MOST_STEP)
            else:
                step = 1.0 / STEP if step >= 1.0 else max(step * step, 1.0 / MOST_STEP)
            median_s *= step
            if median_s < SHORTEST_S:
                median_s = SHORTEST_S
            since = 0.0
        self._step, self.median_s = step, median_s
