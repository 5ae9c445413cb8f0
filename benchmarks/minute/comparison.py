"""Forecasts of the largest second of the next minute, compared.

Forms are chosen by rolling origin within the fitted days (:func:`rolling`), and what was chosen is compared on the two
days that nothing was fitted to (:func:`measure`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from scheduler.control.learned import NEXT_MINUTE, Learner, start

from . import lstm
from .fit import inputs_at, quantile_regression
from .stream import DAY_S, FITTED_DAYS, MINUTE_S, maxima, minutes_before, rates, starts

TESTED_DAYS = 2
#: the first day that rolling origin forecasts
ROLLING_FROM = 8
#: what the margin is for
QUANTILE = 0.95


@dataclass(frozen=True)
class Score:
    """A forecaster's errors on the tested days.

    Attributes:
        mae: mean absolute error of the estimate, in queries/s.
        pinball: mean pinball loss of estimate and margin at :data:`QUANTILE`, in queries/s.
        covered: share of minutes whose largest second is not above estimate and margin.
    """

    mae: float
    pinball: float
    covered: float


def score(estimate: np.ndarray, upper: np.ndarray, came: np.ndarray) -> Score:
    off = came - upper
    pinball = np.maximum(QUANTILE * off, (QUANTILE - 1) * off)
    return Score(float(np.abs(came - estimate).mean()), float(pinball.mean()), float((off <= 0).mean()))


def with_margin(estimate: np.ndarray, came: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """The estimate plus the quantile of its errors where ``fitted``."""
    return estimate + np.quantile((came - estimate)[fitted], QUANTILE)


def regression(before: np.ndarray, came: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Least squares on the network's inputs."""
    inputs = np.column_stack([before, np.ones(len(before))])
    return inputs @ np.linalg.lstsq(inputs[fitted], came[fitted], rcond=None)[0]


def refitted(seen: np.ndarray, came: np.ndarray) -> np.ndarray:
    """Forecasts that learn from each minute once it is over, shape (minutes, 2)."""
    learner, found = Learner(NEXT_MINUTE, QUANTILE), []
    for row, value in zip(seen, came, strict=True):
        found.append(learner.coefficients @ row)
        learner.learn(row, value)
    return np.array(found)


def measure() -> Iterator[tuple[str, Score]]:
    """Names and scores, one forecaster after the other."""
    seconds, at = rates(), starts(1, FITTED_DAYS + TESTED_DAYS)
    came, before, seen = maxima(seconds, at), minutes_before(seconds, at), inputs_at(seconds, at)
    fitted = at + MINUTE_S <= starts(FITTED_DAYS + 1, 1)[0]
    tested = ~fitted
    for name, estimate in (
        ("the last minute's maximum", before[:, -1]),
        ("regression on the network's inputs", regression(before, came, fitted)),
        ("LSTM of InfAdapter", lstm.predict(before)),
    ):
        yield name, score(estimate[tested], with_margin(estimate, came, fitted)[tested], came[tested])
    own = [seen[tested] @ quantile_regression(seen[fitted], came[fitted], level) for level in (0.5, QUANTILE)]
    yield "`minute`, fitted to this stream alone", score(*own, came[tested])
    kept = seen[tested] @ start(NEXT_MINUTE, QUANTILE).T
    yield "`minute`, as it starts", score(*kept.T, came[tested])
    yield "`minute`, refitted each minute", score(*refitted(seen[tested], came[tested]).T, came[tested])


def rolling(first: int = ROLLING_FROM, last: int = FITTED_DAYS) -> Iterator[tuple[str, Score]]:
    """Names and scores of forms of a forecaster, by rolling origin.

    Each day from ``first`` to ``last`` is forecast by what was fitted to all days before it; errors of all days count
    together.
    """
    seconds = rates()
    found: dict[str, list[np.ndarray]] = {}
    for day in range(first, last + 1):
        at = starts(1, day)
        came, before, seen = maxima(seconds, at), minutes_before(seconds, at), inputs_at(seconds, at)
        tested = at >= (day - 1) * DAY_S
        fitted = at + MINUTE_S <= (day - 1) * DAY_S
        forms = {
            name: np.column_stack([estimate, with_margin(estimate, came, fitted)])
            for name, estimate in (
                ("the last minute's maximum", before[:, -1]),
                ("regression on the network's inputs", regression(before, came, fitted)),
            )
        }
        # The square root of the mean is the last input.
        for name, inputs in (("`minute` without the square root of the mean", seen[:, :-1]), ("`minute`", seen)):
            levels = (0.5, QUANTILE)
            forms[name] = np.column_stack(
                [inputs @ quantile_regression(inputs[fitted], came[fitted], level) for level in levels]
            )
        for name, both in forms.items():
            found.setdefault(name, []).append(np.column_stack([both, came])[tested])
    for name, parts in found.items():
        yield name, score(*np.concatenate(parts).T)


def render(scores: Iterable[tuple[str, Score]]) -> str:
    """A Markdown table."""
    lines = ["| forecaster | MAE | pinball(0.95) | covered |", "|---|---:|---:|---:|"]
    lines += [f"| {name} | {s.mae:.2f} | {s.pinball:.3f} | {s.covered:.1%} |" for name, s in scores]
    return "\n".join(lines)
