"""A forecaster that learns: linear regressions on what demand did within three minutes, refitted as demand comes. Pure.

Each application has two regressions on the same inputs (:func:`inputs`): for the median of what comes and for the
quantile that is planned for, whose difference is the margin. Both are fitted by iteratively reweighted least squares,
one pass over the examples, discounted by :data:`MEMORY`; :mod:`.learned_start` has the coefficients that they start from
and are drawn to. Memory and time are bounded: two matrices for each application, one example in :data:`EVERY_S`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from .learned_start import MAXIMUM, MEANS, QUANTILES

#: seconds that inputs are made from, and how many of them an example needs at least
PAST_S, LEAST_S = 180, 30
MINUTE_S = 60
#: seconds between two examples
EVERY_S = 10
#: examples that count, a day of them; older ones fade
MEMORY = 8640.0
#: examples that the start counts as
WEIGHT = 300.0
#: share of what comes that must have been reported for it to be an example
REPORTED = 0.8
#: least error that sets an example's weight, and rate (items/s) added to the scale, which is then never zero
NEAR, OFFSET = 0.02, 1.0
#: most that is forecast, as a multiple of the largest second of the past: after silence that long, nothing
LIMIT = 3.0
#: numbers that :func:`inputs` makes
INPUTS = 11


class Target(NamedTuple):
    """Seconds that are forecast, and whether their largest (or their mean) is."""

    seconds: int
    largest: bool = False


#: InfAdapter's: what the worst second of the next minute will bring
NEXT_MINUTE = Target(MINUTE_S, largest=True)


class Forecast(NamedTuple):
    """Items/s by application, shape (applications,): the estimate, and what is exceeded as rarely as was asked for."""

    median: np.ndarray
    upper: np.ndarray


def inputs(items: np.ndarray) -> np.ndarray:
    """What a regression sees, shape (applications, :data:`INPUTS`).

    ``items``: arrivals, shape (seconds, applications), oldest second first, at least one; only the last
    :data:`PAST_S` count. A minute that is absent is taken to have been as the one after it.
    """
    maxima, means = [], []
    for minute in range(PAST_S // MINUTE_S):
        end = len(items) - minute * MINUTE_S
        if end > 0:
            some = items[max(0, end - MINUTE_S) : end]
            maxima.append(some.max(axis=0))
            means.append(some.mean(axis=0))
        else:
            maxima.append(maxima[-1])
            means.append(means[-1])
    recent = [items[-seconds:].mean(axis=0) for seconds in (30, 10, 5)]
    highest = [items[-seconds:].max(axis=0) for seconds in (10, 30)]
    return np.stack([*maxima, *means, *recent, *highest], axis=1)


def start(target: Target, quantile: float) -> np.ndarray:
    """Coefficients that learning starts from, shape (2, inputs): for the median and for ``quantile``.

    Between and beyond the horizons and quantiles that were fitted, they are interpolated; quantiles by the deviations
    of a normal distribution.
    """
    if target.largest:
        median, high = np.array(MAXIMUM)
    else:
        (short, of_short), (long, of_long) = ((s, np.array(c)) for s, c in sorted(MEANS.items()))
        share = min(max((target.seconds - short) / (long - short), 0.0), 1.0)
        median, high = (1 - share) * of_short + share * of_long
    deviations = NormalDist().inv_cdf
    return np.stack([median, median + (high - median) * deviations(quantile) / deviations(QUANTILES[1])])


class Learner:
    """The regressions of one application for one target."""

    def __init__(self, target: Target, quantile: float, state: np.ndarray | None = None) -> None:
        """``state``: a :attr:`state` of earlier; one that cannot be is ignored."""
        self._levels = (0.5, quantile)
        self._start = start(target, quantile)
        self._sums = np.zeros((2, INPUTS, INPUTS + 1))
        if state is not None and state.shape == self._sums.shape and np.isfinite(state).all():
            self._sums = state.astype(float)
        self._fit()

    @property
    def state(self) -> np.ndarray:
        """All that was learned, shape (2, inputs, inputs + 1)."""
        return self._sums

    @property
    def coefficients(self) -> np.ndarray:
        """Shape (2, inputs)."""
        return self._coefficients

    def learn(self, seen: np.ndarray, came: Sequence[float] | np.ndarray) -> None:
        """Take in examples, oldest first: :func:`inputs`, shape (examples, inputs), and what came, items/s."""
        for row, value in zip(seen, came, strict=True):
            scale = row[3] + OFFSET
            scaled, outcome = row / scale, value / scale
            error = outcome - self._coefficients @ scaled
            sides = [level if off > 0 else 1 - level for level, off in zip(self._levels, error, strict=True)]
            weights = np.array(sides) / np.maximum(np.abs(error), NEAR)
            self._sums *= 1.0 - 1.0 / MEMORY
            self._sums += weights[:, None, None] * np.outer(scaled, [*scaled, outcome])
            self._fit()

    def _fit(self) -> None:
        drawn = WEIGHT * np.eye(INPUTS)
        fitted = np.linalg.solve(self._sums[:, :, :-1] + drawn, self._sums[:, :, -1:] + WEIGHT * self._start[:, :, None])
        self._coefficients = fitted[:, :, 0]


def forecast(items: np.ndarray, coefficients: np.ndarray) -> Forecast:
    """The forecasts of all applications. None is negative; after :data:`PAST_S` of silence they are zero.

    Args:
        items: as of :func:`inputs`.
        coefficients: of each application, shape (applications, 2, inputs).
    """
    values = np.einsum("ai,aqi->qa", inputs(items), coefficients)
    most = LIMIT * items[-PAST_S:].max(axis=0)
    median = np.clip(values[0], 0.0, most)
    return Forecast(median, np.clip(values[1], median, most))
