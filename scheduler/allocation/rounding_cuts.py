"""Rounding cuts: valid inequalities for whole slices, for the MILP of `nereus`.

The relaxation takes parts of slices: of one that can serve two thirds of a demand, one and a half. Whole ones serve
min(1, sum of a_t * n_t) of it, where n_t slices can serve a_t each. Mixed-integer rounding (Nemhauser and Wolsey 1990)
by a share d, with r = 1 - floor(1 / d) * d > 0:

    served <= 1 - r * ceil(1 / d) + sum over t of n_t * (r * floor(a_t / d) + min(r, a_t - floor(a_t / d) * d))

It holds for what is served at an accuracy or above it, since only slices of such variants serve that; and with whole
dedicated devices among the slices, or without these and what they serve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

#: Tolerance of whole multiples.
WHOLE = 1e-9
#: Least remainder: cuts by smaller ones say little and round badly.
REMAINDER = 1e-4
#: Least violation of a cut that is added, as a share of the demand.
VIOLATION = 1e-4
#: Whole parts of the shares that slices can serve, by which cuts are sought.
PARTS = (1, 2, 3)


@dataclass(frozen=True)
class RoundingCut:
    """One cut.

    Attributes:
        q: the application.
        accuracy: it limits what is served at this accuracy or above it.
        by: the share by which shares are rounded, below 1.
        dedicated: dedicated devices take part.
    """

    q: int
    accuracy: float
    by: float
    dedicated: bool

    @property
    def limit(self) -> float:
        """The most served without any slice; below 0, as each counts more than it serves."""
        return float(_limits(np.array(self.by)))

    def limits(self, q: int, accuracy: float) -> bool:
        """Whether it limits what a variant of this application and accuracy serves."""
        return q == self.q and accuracy >= self.accuracy

    def count(self, share: float) -> float:
        """Return what a slice that can serve this share counts: :func:`counts` of one."""
        whole, remainder = math.floor(share / self.by + WHOLE), 1.0 - math.floor(1 / self.by + WHOLE) * self.by
        return remainder * whole + min(max(share - whole * self.by, 0.0), remainder)


@dataclass(frozen=True, slots=True)
class Served:
    """How a relaxation serves an application.

    Attributes:
        slices: number by accuracy and share that each can serve.
        by_slices: (accuracy, share served).
        by_devices: of each group's dedicated devices, the number, and (accuracy, share that one can serve, share
            served).
    """

    slices: Mapping[tuple[float, float], float]
    by_slices: Sequence[tuple[float, float]]
    by_devices: Sequence[tuple[float, Sequence[tuple[float, float, float]]]]


def counts(shares: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Return what whole slices count that can serve these shares, rounded ``by`` one."""
    whole, remainder = np.floor(shares / by + WHOLE), _remainders(by)
    return remainder * whole + np.clip(shares - whole * by, 0.0, remainder)


def violated(q: int, served: Served) -> list[RoundingCut]:
    """Return the most violated cut of an application at each accuracy."""
    accuracy, share = np.array(list(served.slices)).T
    number = np.array(list(served.slices.values()))
    least = np.unique(accuracy)
    above = accuracy >= least[:, None]
    by = _candidates(share, served)
    if not len(by):
        return []
    # By accuracy and candidate, the violation.
    over = _above(served.by_slices, 1, least)[:, None] - _limits(by) - (above * number) @ counts(share, by[:, None]).T
    both = over.copy()
    for devices, points in served.by_devices:
        most = np.array([max((p[1] for p in points if p[0] >= a), default=0.0) for a in least])
        both += _above(points, 2, least)[:, None] - devices * counts(np.minimum(most, 1.0)[:, None], by)
    worst = np.maximum(over, both).argmax(axis=1)
    rows = np.arange(len(least))
    return [
        RoundingCut(q, float(a), float(by[i]), bool(with_them > without))
        for a, i, without, with_them in zip(least, worst, over[rows, worst], both[rows, worst], strict=True)
        if max(without, with_them) > VIOLATION
    ]


def _candidates(share: np.ndarray, served: Served) -> np.ndarray:
    """Shares to round by: what slices and devices in use can serve, and parts of it."""
    devices = [max(p[1] for p in points) for number, points in served.by_devices if number > WHOLE]
    found = np.unique(np.concatenate([np.array([*share, *devices]) / part for part in PARTS]))
    found = found[found < 1 - WHOLE]
    return found[_remainders(found) >= REMAINDER]


def _above(parts: Sequence[tuple[float, ...]], served: int, least: np.ndarray) -> np.ndarray:
    """By accuracy, the share served at it or above it."""
    return np.array([sum(part[served] for part in parts if part[0] >= a) for a in least])


def _remainders(by: np.ndarray) -> np.ndarray:
    return 1.0 - np.floor(1 / by + WHOLE) * by


def _limits(by: np.ndarray) -> np.ndarray:
    return 1.0 - _remainders(by) * (np.floor(1 / by + WHOLE) + 1)
