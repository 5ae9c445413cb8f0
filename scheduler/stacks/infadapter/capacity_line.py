"""Capacity of an instance by its cores: a line through few measurements. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression

#: cores that the line is fitted to where these were measured (InfAdapter, Section 5, "Profiling methodology")
FITTED_CORES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class CapacityLine:
    intercept: float
    slope: float

    def at(self, cores: float) -> float:
        return max(0.0, self.intercept + self.slope * cores)

    def r_squared(self, points: Sequence[tuple[int, float]]) -> float:
        mean = sum(rate for _, rate in points) / len(points)
        total = sum((rate - mean) ** 2 for _, rate in points)
        rest = sum((rate - self.intercept - self.slope * cores) ** 2 for cores, rate in points)
        return 1.0 - rest / total if total > 0 else 1.0


def fitted(points: Sequence[tuple[int, float]]) -> CapacityLine:
    """Fit a line to one or more points (cores, items/s) by least squares.

    The line is fitted to the points at :data:`FITTED_CORES`, or to all of them where fewer than two are there. It goes
    through the origin for a single one.
    """
    chosen = [point for point in points if point[0] in FITTED_CORES]
    cores, rates = zip(*(chosen if len(chosen) > 1 else points), strict=True)
    if len(set(cores)) == 1:
        return CapacityLine(0.0, fmean(rates) / cores[0])
    slope, intercept = linear_regression(cores, rates)
    return CapacityLine(intercept, slope)
