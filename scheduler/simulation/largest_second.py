"""The forecaster `minute`: the largest second of the next minute, which InfAdapter plans for (Section 5).

Pure; for simulations alone, in place of the paper's LSTM. Two linear regressions on three minutes of demand, fitted
beforehand to the paper's stream: for the median and for a high quantile.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from scheduler.control.demand import MINUTE_S, Forecast

#: names of forecasters: the live one, and this one
TREND, MINUTE = ALL = ("trend", "minute")
#: seconds that inputs are made from
PAST_S = 180
#: most that is forecast, as a multiple of the largest second of the past; after :data:`PAST_S` of silence it is zero
LIMIT = 3.0
#: of each of :func:`inputs`, for the median and for :data:`HIGH`
COEFFICIENTS = np.array(
    (
        (0.1317, 0.0709, 0.0906, -0.143, -0.1394, -0.1321, 0.6785, 0.1083, 0.1336, 0.1234, 0.0796, 1.3889),
        (0.9647, 0.0444, 0.1147, 0.1169, -0.1466, -0.1873, -0.2579, -0.2665, 0.4263, 0.2737, -0.0294, 0.8635),
    )
)
HIGH = 0.95


def inputs(items: np.ndarray) -> np.ndarray:
    """The regressions' inputs, shape (applications, 12).

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


def forecast(items: np.ndarray, quantile: float) -> Forecast:
    """Return the forecasts of all applications.

    None is negative, and no ``upper`` is below its ``median``.

    Args:
        items: as :func:`inputs` takes them.
        quantile: that ``upper`` is of, by the deviations of a normal distribution.
    """
    median, high = (inputs(items) @ COEFFICIENTS.T).T
    deviations = NormalDist().inv_cdf
    upper = median + (high - median) * deviations(quantile) / deviations(HIGH)
    most = LIMIT * items[-PAST_S:].max(axis=0)
    median = np.clip(median, 0.0, most)
    return Forecast(median, np.clip(upper, median, most))
