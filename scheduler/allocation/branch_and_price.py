"""Branch and price for the MILP of `nereus`.

Plans are split until none that is left is worth more than the best one found, by enough. The branch of the highest
bound comes first. It is split by a feature of devices (:mod:`.column_generation`) of which its relaxation has no whole
number: revisit periods, applications and dedicated devices first, then variants, then slices. Among those nearest to a
half, the one is taken that lowers the relaxation most (strong branching).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush

from .column_generation import WHOLE, Branch, Feature, Relaxed
from .device_counts import DeviceCounts
from .milp_program import INFINITE
from .solver import Budget

#: Features tried before one is taken.
TRIED = 4
#: The order in which features are split.
_ORDER = {"period": 0, "application": 0, "dedicated": 0, "variant": 1, "slice": 2}


def branch_and_price(
    relaxed: Relaxed,
    bound: float,
    enough: Callable[[], float],
    take: Callable[[DeviceCounts], None],
    budget: Budget,
) -> float:
    """Lower the bound of all plans until it is enough.

    Args:
        bound: the relaxation's, at the root.
        enough: bound that is low enough for the best plan found so far.
        take: receives plans; may change what is enough.

    Returns:
        A bound for all plans: ``enough()`` or less, or what is reached when the work or the time is spent.
    """
    branches: list[tuple[float, int, Branch]] = [(-bound, 0, {})]
    closed, count = -math.inf, 0
    while branches and -branches[0][0] > enough() and relaxed.work > 0 and budget.left() > 0:
        above, _, branch = heappop(branches)
        reached = min(-above, relaxed.bound(branch, enough(), budget))
        if reached <= enough():
            closed = max(closed, reached)
            continue
        counted = relaxed.counted()
        if not relaxed.divided():
            take(relaxed.program.counts(relaxed.of_columns()))
        feature = _split(relaxed, branch, counted)
        if feature is None:
            closed = max(closed, reached)
            continue
        for half in _halves(branch, feature, counted[feature]):
            count += 1
            heappush(branches, (-reached, count, half))
    relaxed.enter({})
    return max(closed, -branches[0][0] if branches else -math.inf)


def _split(relaxed: Relaxed, branch: Branch, counted: dict[Feature, float]) -> Feature | None:
    """The feature to split by; None where all are whole."""
    split = [f for f, number in counted.items() if abs(number - round(number)) > WHOLE]
    if not split:
        return None
    first = min(_ORDER[f[0]] for f in split)
    tried = sorted(
        (f for f in split if _ORDER[f[0]] == first),
        key=lambda f: (round(abs(counted[f] % 1 - 0.5), 6), str(f)),
    )[:TRIED]
    for feature in tried:
        relaxed.require(feature)
    if len(tried) == 1:
        return tried[0]
    here = relaxed.value(branch)

    def lowers(feature: Feature) -> float:
        low, high = (relaxed.value(half) for half in _halves(branch, feature, counted[feature]))
        return max(here - low, WHOLE) * max(here - high, WHOLE)

    return max(tried, key=lowers)


def _halves(branch: Branch, feature: Feature, number: float) -> tuple[Branch, Branch]:
    """The branch with fewer, and with more, devices that have the feature."""
    low, high = branch.get(feature, (0.0, INFINITE))
    return {**branch, feature: (low, float(math.floor(number)))}, {**branch, feature: (float(math.ceil(number)), high)}
