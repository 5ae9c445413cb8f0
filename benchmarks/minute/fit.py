"""The coefficients that :mod:`scheduler.control.learned` starts from.

They are fitted to days 1 to 14 of the published stream. ``python -m benchmarks.minute.fit`` writes
``scheduler/control/learned_start.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from .stream import FITTED_DAYS, maxima, rates, starts

QUANTILES = (0.5, 0.95)
HORIZONS_S = (10, 30)
FILE = Path(__file__).resolve().parents[2] / "scheduler" / "control" / "learned_start.py"
#: weight of an error at another rate than the stream's own, errors taken as shares of the rate
OTHER_RATES = 0.1
ROUNDS = 60


def inputs_at(seconds: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The inputs at each of ``at``, shape (moments, inputs)."""
    from scheduler.control.learned import PAST_S, inputs

    return np.concatenate([inputs(seconds[part[:, None] + np.arange(-PAST_S, 0)].T) for part in np.array_split(at, 40)])


def mean_after(seconds: np.ndarray, at: np.ndarray, horizon_s: int) -> np.ndarray:
    """The mean of the ``horizon_s`` seconds from each of ``at`` on."""
    sums = np.concatenate([[0.0], np.cumsum(seconds)])
    return (sums[at + horizon_s] - sums[at]) / horizon_s


def quantile_regression(seen: np.ndarray, came: np.ndarray, level: float) -> np.ndarray:
    """Return the coefficients that minimise the pinball loss.

    They are found by iteratively reweighted least squares.
    """
    scale = np.abs(seen).max(axis=0)
    scaled = seen / scale
    found = np.linalg.lstsq(scaled, came, rcond=None)[0]
    for number in range(ROUNDS):
        error = came - scaled @ found
        weights = np.where(error > 0, level, 1 - level) / np.maximum(np.abs(error), max(1e-3, 0.9**number))
        weighted = scaled * weights[:, None]
        ridge = 1e-8 * len(came) * np.eye(scaled.shape[1])
        found = np.linalg.solve(weighted.T @ scaled + ridge, weighted.T @ came)
    return found / scale


def thinned(seconds: np.ndarray, share: float) -> np.ndarray:
    """Return the stream with each query kept by chance.

    This is a smaller application, whose noise is relatively larger.
    """
    return np.random.default_rng(1).binomial(seconds.astype(int), share).astype(float)


def fit(seconds: np.ndarray, at: np.ndarray) -> tuple[list, dict[int, list]]:
    """Fit coefficients for the next minute's maximum and, by horizon, for means.

    There are some for each of :data:`QUANTILES`. A tenth and ten times the stream count beside it, a tenth each as
    much, so that they hold for other rates, too.
    """
    parts = [(seconds, 1.0), (thinned(seconds, 0.1), 10 * OTHER_RATES), (seconds * 10, OTHER_RATES / 10)]
    seen = np.concatenate([weight * inputs_at(some, at) for some, weight in parts])

    def of(target: Callable[[np.ndarray], np.ndarray]) -> list:
        came = np.concatenate([weight * target(some) for some, weight in parts])
        return [quantile_regression(seen, came, level).round(4).tolist() for level in QUANTILES]

    means = {horizon: of(lambda some, horizon=horizon: mean_after(some, at, horizon)) for horizon in HORIZONS_S}
    return of(lambda some: maxima(some, at)), means


def main() -> None:
    """Fit and write."""
    largest, means = fit(rates(), starts(1, FITTED_DAYS))

    def rows(both: list, indent: str) -> str:
        return "".join(f"{indent}{tuple(row)!r},\n" for row in both)

    text = (
        '"""Where the learning forecaster starts. Written by ``python -m benchmarks.minute.fit``."""\n\n'
        f"#: quantiles that the coefficients are of\nQUANTILES = {QUANTILES!r}\n"
        f"#: for the largest second of the next minute\nMAXIMUM = (\n{rows(largest, '    ')})\n"
        "#: for the mean of the next seconds, by how many they are\nMEANS = {\n"
        + "".join(f"    {horizon}: (\n{rows(both, '        ')}    ),\n" for horizon, both in means.items())
        + "}\n"
    )
    FILE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
