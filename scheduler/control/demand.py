"""Demand: from items that arrived, second by second, to the items/s to plan for.

Pure. A plan is in force for a period, so it must be able to serve that period's mean rate. The planned demand is a high
quantile of the forecast of that mean, not the forecast times a fixed factor: a steady application needs little margin,
a variable one much. (Proteus' published simulator takes an exponentially weighted mean times 1.05; its paper, Section
4, names no margin.)

The forecast is an exponentially weighted level plus a damped trend (Holt; damping as by Gardner and McKenzie, 1985).
Its spread has a part that is known beforehand, Poisson noise of the period to come and of the estimate itself, and a
part that the application's own past shows: how far the same forecast, made at each of the last seconds, was off. A
burst shows in the last two seconds first and its end in the last four, and these are believed as soon as noise does not
explain them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from workers.gateway.bursts import LONG, MEDIUM, SECOND, SHORT, SLOT_S
from workers.protocol.specs import Band

#: share of periods whose mean rate should stay below what is planned for
QUANTILE = 0.95
#: an application without queries is planned for this much (items/s), so that its first query finds a warm variant
FLOOR = 1.0
#: seconds of arrivals that are looked at
HISTORY_S = MINUTE_S = 60
#: seconds that a forecast looks ahead at most: a plan that is meant to last longer is corrected by bursts
HORIZON_S = 30
#: seconds that show a burst, and seconds that show its end: too much planned is the lesser harm
RECENT_S, FALLEN_S = 2, 4

# One set for all applications, by the pinball loss on the published traces (decision 12).
#: memory (s) of the level and of the trend; how much of the trend is believed, and the most that it may add or take
LEVEL_S, TREND_S, DAMPING, TREND_LIMIT = 4.0, 8.0, 0.4, 0.2
#: drift of a mean rate within 10 s, as a share of it
DRIFT = 0.04
#: past forecasts: the horizon (s) they are judged at, how long (s) they count, the weight of the expected spread beside
#: them, and the deviations beyond which an error counts no more (bursts are noticed, not learned)
JUDGED_S, MEMORY_S, PRIOR, OUTLIER = 7, 30.0, 3.0, 2.5
#: least number of seconds that past forecasts are made from
LEAST_S = 8

#: bound on the rate (1/s) of bursts that are reported though the mean rate is what was planned for, over all
#: applications together
FALSE_BURSTS_PER_S = 1 / 300
#: checks a second of an application: four windows at the end of each slot
LOOKS_PER_S = 4 / SLOT_S


class Forecast(NamedTuple):
    """Items/s by application, shape (applications,); ``upper`` is the quantile that is planned for."""

    median: np.ndarray
    upper: np.ndarray


class Estimates(NamedTuple):
    """Items/s by application: to plan for (at least :data:`FLOOR`), and the forecast without the margin."""

    planned: dict[str, float]
    expected: dict[str, float]


def estimates(
    seconds: Sequence[tuple[int, Mapping[str, float]]],
    applications: Iterable[str],
    now: int,
    observed: Mapping[str, float] | None = None,
    horizon_s: float = 10.0,
    quantile: float = QUANTILE,
    learned: Callable[[np.ndarray], Forecast] | None = None,
    history_s: int = HISTORY_S,
) -> Estimates:
    """Items/s to expect and to plan for.

    Args:
        seconds: (t, {application: items}) oldest first; a second that is absent had no report, not no demand.
        now: the current second, which is not complete and is left out.
        observed: rates that a gateway reported with a burst; fresher than what ``seconds`` holds.
        horizon_s: time until the next plan; forecasts look :data:`HORIZON_S` ahead at most.
        quantile: share of such periods whose mean rate is to be below the estimate, above 0 and below 1.
        learned: another forecaster (simulations alone have one), of the arrivals that :func:`forecast` takes; horizon
            and quantile are then its own. None: level and trend.
    """
    names = list(applications)
    complete = [counts for t, counts in seconds[-history_s - 1 :] if t < now][-history_s:]
    expected = upper = [0.0] * len(names)
    if complete and names:
        items = np.array([[counts.get(name, 0.0) for name in names] for counts in complete], dtype=float)
        if learned is None:
            horizon = min(max(1, round(horizon_s)), HORIZON_S)
            found = forecast(items, horizon, NormalDist().inv_cdf(quantile))
        else:
            found = _with_burst(items, learned(items), items[-MINUTE_S:].mean(axis=0))
        expected, upper = found.median.tolist(), found.upper.tolist()
    planned = {name: max(rate, FLOOR) for name, rate in zip(names, upper, strict=True)}
    for name, rate in (observed or {}).items():
        if name in planned and math.isfinite(rate):
            planned[name] = max(planned[name], rate)
    return Estimates(planned, dict(zip(names, expected, strict=True)))


def forecast(items: np.ndarray, horizon: int, deviations: float) -> Forecast:
    """Forecast the mean of the next seconds, and a value that it should stay below.

    Args:
        items: arrivals, shape (seconds, applications), oldest second first, at least one.
        horizon: length of what is forecast (s).
        deviations: standard deviations between the mean and ``upper``.
    """
    by = _filters(len(items), horizon)
    level = by.level @ items
    mean = _with_trend(level, by.trend @ items)
    fallen = items[-FALLEN_S:].mean(axis=0)
    mean = np.where(fallen + 3.0 * np.sqrt(np.maximum(level, 1.0) / FALLEN_S) < mean, fallen, mean)
    variance = _expected_variance(mean, horizon, by.noise)
    if len(by.weights):
        was = by.actual @ items
        past = by.past_level @ items
        past = _with_trend(past, by.past_trend @ items)
        spread = np.sqrt(_expected_variance(np.maximum(past, was), by.judged, by.noise))
        # Only what came in above the forecast says how far above it to plan; errors to one side hold half the variance.
        above = np.clip((was - past) / spread, 0.0, OUTLIER)
        variance *= (PRIOR + 2.0 * (by.weights @ above**2)) / (PRIOR + by.weights.sum())
    upper = mean + deviations * np.sqrt(variance)
    return _with_burst(items, Forecast(mean, upper), level)


def _with_burst(items: np.ndarray, found: Forecast, level: np.ndarray) -> Forecast:
    """Return the forecast, or the last seconds where they show a burst."""
    recent = items[-RECENT_S:].mean(axis=0)
    burst = recent > found.upper + np.sqrt(np.maximum(level, 1.0) / RECENT_S)
    upper = np.where(burst, recent + 0.5 * np.sqrt(recent / RECENT_S), found.upper)
    return Forecast(np.where(burst, recent, np.maximum(found.median, 0.0)), upper)


def _with_trend(level: np.ndarray, trend: np.ndarray) -> np.ndarray:
    return level + np.clip(trend, -TREND_LIMIT * level, TREND_LIMIT * level)


def _expected_variance(mean: np.ndarray, horizon: int, noise: float) -> np.ndarray:
    """The variance of a forecast's error: Poisson noise of period and estimate, and drift."""
    mean = np.maximum(mean, 1.0)
    return mean * (1.0 / horizon + noise) + (DRIFT * mean) ** 2 * (horizon + 5.0) / 15.0


class _Filters(NamedTuple):
    """Weights over the last seconds, oldest first.

    Attributes:
        level: with ``trend``, makes a forecast; shape (seconds,).
        trend: shape (seconds,).
        noise: variance of the level over that of a second.
        past_level: with ``past_trend``, the forecasts of earlier seconds; shape (forecasts, seconds).
        past_trend: shape (forecasts, seconds).
        actual: what came then; shape (forecasts, seconds).
        weights: how much each of these forecasts counts.
        judged: their horizon (s).
    """

    level: np.ndarray
    trend: np.ndarray
    noise: float
    past_level: np.ndarray
    past_trend: np.ndarray
    actual: np.ndarray
    weights: np.ndarray
    judged: int


@functools.lru_cache(maxsize=4 * HISTORY_S)
def _filters(seconds: int, horizon: int) -> _Filters:
    judged = min(horizon, JUDGED_S)
    origins = range(LEAST_S, seconds - judged + 1)
    past_level, past_trend, actual = (np.zeros((len(origins), seconds)) for _ in range(3))
    for row, origin in enumerate(origins):
        past_level[row, :origin], past_trend[row, :origin] = _level_and_trend(origin, judged)
        actual[row, origin : origin + judged] = 1.0 / judged
    level, trend = _level_and_trend(seconds, horizon)
    weights = np.exp(-np.arange(len(origins))[::-1] / MEMORY_S)
    return _Filters(level, trend, float((level**2).sum()), past_level, past_trend, actual, weights, judged)


def _level_and_trend(seconds: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the level, and of the trend's addition to it.

    The addition is the one by the middle of the horizon, with the slope by discounted least squares.
    """
    age = np.arange(seconds)[::-1].astype(float)
    level = np.exp(-age / LEVEL_S)
    level /= level.sum()
    if seconds < LEAST_S:
        return level, np.zeros(seconds)
    discount = np.exp(-age / TREND_S)
    discount /= discount.sum()
    off = age - discount @ age
    slope = -discount * off / (discount @ off**2)
    return level, DAMPING * (level @ age + (horizon + 1) / 2) * slope


def bands(planned: Mapping[str, float]) -> dict[str, Band]:
    return {application: band(rate, len(planned)) for application, rate in planned.items()}


def band(planned: float, applications: int = 1) -> Band:
    """Return the range of demand (items/s) in which a plan stays in force.

    The plan was made for ``planned``, which is a high quantile of the mean rate. Above: what Poisson counts of that
    mean pass so rarely that the false alarms of all applications together, at every look, stay below
    :data:`FALSE_BURSTS_PER_S` (Bonferroni). Below: what counts of half that mean hardly ever fall to, as the margin of
    a volatile application may be a third of its rate; too much planned costs accuracy alone, and so is not urgent.

    ``applications``: how many are watched, this one included.
    """
    tail = FALSE_BURSTS_PER_S / (LOOKS_PER_S * applications)
    deviations = -NormalDist().inv_cdf(tail)
    mean = max(planned, FLOOR)
    surge, high, rise = (_unlikely(mean, slots * SLOT_S, deviations) for slots in (SHORT, SECOND, MEDIUM))
    low = max(0.0, _unlikely(0.5 * mean, LONG * SLOT_S, -deviations))
    return Band(low=low, high=high, surge=surge, rise=rise)


def _unlikely(mean: float, seconds: float, deviations: float) -> float:
    """Return the rate (items/s) over ``seconds`` that Poisson counts rarely exceed.

    They exceed it as rarely as a normal variable exceeds ``deviations`` standard deviations; below the mean for
    negative ones. By the second-order Cornish-Fisher expansion, which is at most one count off from a mean count of 0.3
    on.
    """
    count = mean * seconds
    return (count + deviations * math.sqrt(count) + (deviations**2 - 1.0) / 6.0) / seconds
