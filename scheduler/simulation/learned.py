"""A forecaster that learns: linear regressions on three minutes of demand.

Pure; for simulations alone. They are refitted as demand comes. Each application has two regressions on the same inputs
(:func:`inputs`): for the median of what comes, and for the quantile that is planned for; their difference is the
margin. Both are fitted by iteratively reweighted least squares, one pass over the examples, of which older ones fade;
they start from and are drawn to coefficients that were fitted to the paper's stream. Memory and time are bounded: two
matrices for each application, one example in :data:`EVERY_S`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from scheduler.control.demand import HORIZON_S, MINUTE_S, Forecast

#: names of forecasters: the live one; mean of the coming period, learned; largest second of the next minute, learned
TREND, LEARNED, MINUTE = ALL = ("trend", "learned", "minute")
#: seconds that inputs are made from
PAST_S = 180
#: seconds between two examples
EVERY_S = 10
#: number of examples that count, a day of them; the weight of older ones fades exponentially
MEMORY = 8640.0
#: number of examples that the start counts as
WEIGHT = 300.0
#: share of the minute before, and of the seconds forecast, that must have been reported for an example
REPORTED = 0.8
#: least error that an example is weighted by, as a share of its scale; an error of zero would outweigh all others
NEAR = 0.02
#: rate (items/s) added to the scale of an example, which else were zero for an idle application
OFFSET = 1.0
#: most that is forecast, as a multiple of the largest second of the past; after :data:`PAST_S` of silence it is zero
LIMIT = 3.0
#: number of values that :func:`inputs` makes, and the index of the last minute's mean among them
INPUTS, LAST_MEAN = 12, 3
#: quantiles that the coefficients are of
QUANTILES = (0.5, 0.95)
#: for the largest second of the next minute
MAXIMUM = (
    (0.1317, 0.0709, 0.0906, -0.143, -0.1394, -0.1321, 0.6785, 0.1083, 0.1336, 0.1234, 0.0796, 1.3889),
    (0.9647, 0.0444, 0.1147, 0.1169, -0.1466, -0.1873, -0.2579, -0.2665, 0.4263, 0.2737, -0.0294, 0.8635),
)
#: for the mean of the next seconds, by how many they are
MEANS = {
    10: (
        (0.0239, -0.0046, 0.0006, -0.021, -0.0178, -0.0101, 0.6951, 0.2578, 0.1066, -0.0002, -0.0351, 0.1102),
        (0.1817, -0.0135, -0.0127, -0.0897, 0.0037, 0.0141, 0.2311, 0.1741, 0.3244, 0.0896, 0.111, 0.0767),
    ),
    30: (
        (0.029, -0.0007, -0.0025, 0.0178, -0.037, -0.0054, 0.7678, 0.1841, 0.0817, -0.0038, -0.04, 0.1025),
        (0.3562, -0.0317, -0.0145, -0.0912, -0.0077, 0.0274, 0.2882, 0.2098, 0.263, 0.0235, -0.0148, -0.0917),
    ),
}


class ForecastTarget(NamedTuple):
    """The next ``seconds``, and whether their largest or their mean is forecast."""

    seconds: int
    largest: bool = False


#: the largest second of the next minute, which InfAdapter plans for (Section 5)
NEXT_MINUTE = ForecastTarget(MINUTE_S, largest=True)


def target_of(forecaster: str, period_s: float) -> ForecastTarget | None:
    """Seconds that a forecaster learns to forecast; None: it does not learn."""
    if forecaster == TREND:
        return None
    return NEXT_MINUTE if forecaster == MINUTE else ForecastTarget(min(max(1, round(period_s)), HORIZON_S))


def inputs(items: np.ndarray) -> np.ndarray:
    """The regressions' inputs, shape (applications, :data:`INPUTS`).

    Largest and mean second of each of the last three minutes, means and largest of their last seconds, and the square
    root of the mean, to which Poisson noise is proportional. A minute without seconds counts as the one after it.

    Args:
        items: arrivals, shape (seconds, applications), oldest second first, at least one; only the last
            :data:`PAST_S` count.
    """
    maxima, means = [], []
    for minute in range(PAST_S // MINUTE_S):
        end = len(items) - minute * MINUTE_S
        some = items[max(0, end - MINUTE_S) : max(0, end)]
        maxima.append(some.max(axis=0) if len(some) else maxima[-1])
        means.append(some.mean(axis=0) if len(some) else means[-1])
    recent = [items[-seconds:].mean(axis=0) for seconds in (30, 10, 5)]
    highest = [items[-seconds:].max(axis=0) for seconds in (10, 30)]
    noise = np.sqrt(sum(means) / len(means))
    return np.stack([*maxima, *means, *recent, *highest, noise], axis=1)


def start(target: ForecastTarget, quantile: float) -> np.ndarray:
    """Return the coefficients to start from, shape (2, inputs).

    They are for the median and for ``quantile``, interpolated between the horizons that were fitted, and from the
    fitted quantile by the deviations of a normal distribution.
    """
    if target.largest:
        median, high = np.array(MAXIMUM)
    else:
        (short, of_short), (long, of_long) = sorted(MEANS.items())
        share = min(max((target.seconds - short) / (long - short), 0.0), 1.0)
        median, high = (1.0 - share) * np.array(of_short) + share * np.array(of_long)
    deviations = NormalDist().inv_cdf
    return np.stack([median, median + (high - median) * deviations(quantile) / deviations(QUANTILES[1])])


class Learner:
    """The regressions of one application for one target.

    Args:
        state: an earlier learner's :attr:`state`; one of another shape or with values that are not finite is ignored.
    """

    def __init__(self, target: ForecastTarget, quantile: float, state: np.ndarray | None = None) -> None:
        self._levels = np.array([0.5, quantile])
        self._start = start(target, quantile)
        self._sums = np.zeros((2, INPUTS, INPUTS + 1))
        if state is not None and state.shape == self._sums.shape and np.isfinite(state).all():
            self._sums += state
        self.coefficients = self._fitted()

    @property
    def state(self) -> np.ndarray:
        """All that was learned, shape (2, inputs, inputs + 1)."""
        return self._sums

    def learn(self, seen: np.ndarray, came: float) -> None:
        """Learn from a row of :func:`inputs` and items/s that came, unless all was silent."""
        if not seen[LAST_MEAN] > 0:
            return
        scale = seen[LAST_MEAN] + OFFSET
        scaled, outcome = seen / scale, came / scale
        error = outcome - self.coefficients @ scaled
        sides = np.where(error > 0, self._levels, 1.0 - self._levels)
        weights = sides / np.maximum(np.abs(error), NEAR)
        self._sums *= 1.0 - 1.0 / MEMORY
        self._sums += weights[:, None, None] * np.outer(scaled, np.append(scaled, outcome))
        self.coefficients = self._fitted()

    def _fitted(self) -> np.ndarray:
        matrices = self._sums[:, :, :-1] + WEIGHT * np.eye(INPUTS)
        try:
            found = np.linalg.solve(matrices, self._sums[:, :, -1:] + WEIGHT * self._start[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            return self._start
        return found if np.isfinite(found).all() else self._start


def forecast(items: np.ndarray, coefficients: np.ndarray) -> Forecast:
    """Return the forecasts of all applications.

    None is negative, and no ``upper`` is below its ``median``.

    Args:
        items: as :func:`inputs` takes them.
        coefficients: of each application, shape (applications, 2, inputs).
    """
    values = np.einsum("ai,aqi->qa", inputs(items), coefficients)
    most = LIMIT * items[-PAST_S:].max(axis=0)
    median = np.clip(values[0], 0.0, most)
    return Forecast(median, np.clip(values[1], median, most))


def learn(
    learners: Mapping[str, Learner],
    seconds: Sequence[tuple[int, Mapping[str, float]]],
    target: ForecastTarget,
    since: int | None,
    now: int,
) -> int:
    """Teach learners what has come, one example in :data:`EVERY_S`.

    Seconds without a report are left out.

    Args:
        learners: by application.
        seconds: (t, {application: items}), oldest first, t ascending.
        since: the moment of the last example; None: none yet. One in the future is of a clock that was set back.
        now: the current second, which is not complete.

    Returns:
        The moment of the last example that was available, for the next call.
    """
    complete = [(t, counts) for t, counts in seconds if t < now]
    last = now - target.seconds
    if not complete:
        return last if since is None else min(since, last)
    times = np.array([t for t, _ in complete])
    first = int(times[0]) + MINUTE_S
    at = first if since is None or since > last else max(first, since + EVERY_S)
    taught = last if since is None else min(since, last)
    names = list(learners)
    items = np.array([[counts.get(name, 0.0) for name in names] for _, counts in complete], dtype=float)
    for moment in range(at, last + 1, EVERY_S):
        taught = moment
        begin, minute, here, end = np.searchsorted(
            times, [moment - PAST_S, moment - MINUTE_S, moment, moment + target.seconds]
        )
        if here - minute < REPORTED * MINUTE_S or end - here < REPORTED * target.seconds:
            continue
        came = items[here:end].max(axis=0) if target.largest else items[here:end].mean(axis=0)
        for name, seen, value in zip(names, inputs(items[begin:here]), came.tolist(), strict=True):
            learners[name].learn(seen, value)
    return taught
