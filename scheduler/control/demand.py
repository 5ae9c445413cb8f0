"""Demand estimation: from items that arrived, second by second, to the items/s to plan for. Pure.

An exponentially weighted mean follows slow change (as Proteus estimates demand, Section 4); a burst shows in the last
seconds first, so these count in full as soon as they exceed the mean by more than Poisson noise would.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from workers.protocol.specs import Band

#: weight of the newest second in the mean
SMOOTHING = 0.25
#: seconds that show a burst
RECENT_S = 2
#: an application without queries is planned for this much, so that its first query finds a warm variant
FLOOR = 1.0


def estimate(
    seconds: Sequence[tuple[int, Mapping[str, float]]],
    applications: Iterable[str],
    now: int,
    observed: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Items/s by application, at least :data:`FLOOR`.

    Args:
        seconds: (t, {application: items}) oldest first; a second that is absent had no report, not no demand.
        applications: for which to estimate.
        now: the current second, which is not complete and is left out.
        observed: rates that a gateway reported with a burst; fresher than what ``seconds`` holds.
    """
    complete = [(t, counts) for t, counts in seconds if t < now]
    demand = {}
    for name in applications:
        mean = None
        for _, counts in complete:
            items = counts.get(name, 0.0)
            mean = items if mean is None else mean + SMOOTHING * (items - mean)
        mean = mean or 0.0
        recent = [counts.get(name, 0.0) for t, counts in complete if t >= now - RECENT_S - 1][-RECENT_S:]
        level = sum(recent) / len(recent) if recent else 0.0
        if observed is not None:
            level = max(level, observed.get(name, 0.0))
        if level > mean + 2 * math.sqrt(max(mean, 1.0) / RECENT_S):
            mean = level
        demand[name] = max(mean, FLOOR)
    return demand


def band(planned: float) -> Band:
    """The range of demand (items/s) in which a plan made for ``planned`` stays in force.

    Above: three standard deviations of a second's Poisson count, so that noise asks for a new plan once in minutes
    and a real burst at once. Below: a quarter less, which costs accuracy, not punctuality, and so has time.
    """
    return Band(low=0.75 * planned - 1.0, high=planned + 3.0 * math.sqrt(max(planned, 1.0)))
