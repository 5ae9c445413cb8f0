"""Prediction intervals for the next window. Pure.

They come from simulated windows and past promises. Among n exchangeable windows, the next one lies between the least
and the greatest of the others with probability (n - 1) / (n + 1): with 19 of them, 90%. But windows that are drawn from
the same two minutes have seconds in common, and know no more of the load than as many as these minutes have room for,
side by side. With fewer than 19 of those the interval is at least Student's for that many.

A simulation leaves out what it does not know, other processes on the box for one. So an interval is then moved
outwards, or inwards, by as much as past promises missed what came, or had room: conformal prediction (Romano et al.,
"Conformalized Quantile Regression", NeurIPS 2019). How many of these may miss follows how many did (Gibbs and Candes,
"Adaptive Conformal Inference Under Distribution Shift", NeurIPS 2021), so that of T comparisons, each known before the
next promise, at most T / 10 + 6 miss, whatever comes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: figures that are promised, with the least and the greatest that each can be
FIGURES: Mapping[str, tuple[float, float]] = {"accuracy": (0.0, 100.0), "violations": (0.0, 1.0)}
#: share of windows that an interval should hold
COVERAGE = 0.9
#: windows of which the least and the greatest are such an interval
WINDOWS = round((1 + COVERAGE) / (1 - COVERAGE))
#: past promises of which a correction is made: the newest, and no fewer than can have it
MOST_PAST, LEAST_PAST = 100, math.ceil(COVERAGE / (1 - COVERAGE))
#: by how much the share of intervals that may miss changes with a comparison, as a part of its distance; and its limit,
#: so that a long time without misses does not take as long to forget
RATE, MOST_MISSES = 0.02, 0.2
#: two-sided 90% quantiles of Student's t by degrees of freedom, from 1
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)
STUDENT += (1.746, 1.740, 1.734, 1.729)


class Interval(NamedTuple):
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low - 1e-9 <= value <= self.high + 1e-9

    def clipped(self, low: float, high: float) -> Interval:
        return Interval(min(max(self.low, low), high), max(min(self.high, high), low))

    def outside(self, value: float) -> float:
        """Distance of a value from the interval; negative inside of it."""
        return max(self.low - value, value - self.high)


def of_windows(values: Sequence[float], apart: float = math.inf) -> Interval:
    """Return the interval for the next window.

    With fewer than :data:`WINDOWS`, it is by Student's t as well.

    Args:
        values: of simulated windows, at least one.
        apart: how many windows side by side the record has room for that these were drawn from.
    """
    low, high = min(values), max(values)
    count = min(float(len(values)), max(apart, 2.0))
    if len(values) < 2 or count >= WINDOWS:
        return Interval(low, high)
    mean = statistics.fmean(values)
    off = STUDENT[int(count) - 2] * statistics.stdev(values) * math.sqrt(1 + 1 / count)
    return Interval(min(low, mean - off), max(high, mean + off))


def may_miss(held: Iterable[bool]) -> float:
    """The share of intervals that may miss from now on; 0 or less: none may. ``held``: of past ones, oldest first."""
    share = aim = 1.0 - COVERAGE
    for one in held:
        share = min(MOST_MISSES, share + RATE * (aim - (not one)))
    return share


def correction(misses: Sequence[float], share: float = 1.0 - COVERAGE) -> float:
    """By how much to widen (negative: narrow) an interval on both sides.

    Args:
        misses: of past promises, as :meth:`Interval.outside` gives them for the intervals that the simulation made;
            oldest first. With fewer than :data:`LEAST_PAST` there is no correction.
        share: of intervals that may miss. Where none may, only everything is wide enough.
    """
    if share <= 0.0:
        return math.inf
    newest = sorted(misses[-MOST_PAST:])
    if len(newest) < LEAST_PAST:
        return 0.0
    return newest[min(len(newest), math.ceil((1.0 - share) * (len(newest) + 1) - 1e-9)) - 1]


def widened(interval: Interval, by: float) -> Interval:
    if interval.high - interval.low + 2 * by < 0:
        middle = (interval.low + interval.high) / 2
        return Interval(middle, middle)
    return Interval(interval.low - by, interval.high + by)
