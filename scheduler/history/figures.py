"""Series of figures for charts, from sums on a grid of time. Pure.

Units as in the console: rates in 1/s, shares and accuracies in percent, latencies in ms. None: nothing is known, since
no report covers the point or, for a ratio, since nothing was answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scheduler.history.folding import APPLICATION, DEVICE, HIGHEST

#: steps (s) that people read easily; each is a multiple of the tier's resolution below it
STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)


class Grid(NamedTuple):
    """Point ``i`` is of the ``step`` seconds from ``start + i * step`` on."""

    start: int
    step: int
    points: int

    @property
    def end(self) -> int:
        return self.start + self.step * self.points


def grid(begin: int, end: int, resolution: int, most: int) -> Grid:
    """Return a grid of at most ``most`` points, of rows of ``resolution`` seconds.

    There is one more point for a begin in the middle of a step.
    """
    fits = [step for step in STEPS if step % resolution == 0 and (end - begin) / step <= most]
    step = fits[0] if fits else -(-(end - begin) // (most * STEPS[-1])) * STEPS[-1]
    start = begin - begin % step
    return Grid(start, step, max(1, -(-(end - start) // step)))


class Sums:
    """Sums on a grid: ``seconds`` by point, ``values`` by point and column."""

    def __init__(self, on: Grid, columns: Sequence[str]) -> None:
        self.on = on
        self._peaks = [index for index, name in enumerate(columns) if name in HIGHEST]
        self.seconds = np.zeros(on.points, np.int64)
        self.values = np.zeros((on.points, len(columns)), np.float64)

    def add(self, starts: np.ndarray, seconds: np.ndarray, values: np.ndarray) -> None:
        at = (starts - self.on.start) // self.on.step
        inside = (at >= 0) & (at < self.on.points)
        order = np.argsort(at[inside], kind="stable")
        at, seconds, values = at[inside][order], seconds[inside][order], values[inside][order].astype(np.float64)
        if not len(at):
            return
        # Runs of rows of one point: a quarter of the time of ufunc.at.
        first = np.flatnonzero(np.diff(at, prepend=-1))
        to = at[first]
        self.seconds[to] += np.add.reduceat(seconds, first)
        highest = np.maximum(
            self.values[to][:, self._peaks], np.maximum.reduceat(values[:, self._peaks], first, axis=0)
        )
        self.values[to] += np.add.reduceat(values, first, axis=0)
        for index, peak in enumerate(self._peaks):
            self.values[to, peak] = highest[:, index]


def application_series(sums: Sums) -> dict[str, list[float | None]]:
    column = {name: sums.values[:, index] for index, name in enumerate(APPLICATION)}
    answered = column["in_time"] + column["late"]
    ended = answered + column["dropped"] + column["failed"]
    return {
        "demand": ratio(column["arrived"], sums.seconds),
        "throughput": ratio(answered, sums.seconds),
        "accuracy": ratio(column["normalized_sum"], column["in_time"] * 10_000),
        "violations": ratio(100 * (ended - column["in_time"]), ended, 4),
        "p50_ms": ratio(column["p50_sum"], answered * 1000),
        "p95_ms": ratio(column["p95_sum"], answered * 1000),
        "p95_ms_highest": ratio(column["p95_max"] * (answered > 0), (answered > 0) * 1000),
    }


def device_series(sums: Sums) -> dict[str, list[float | None]]:
    """A device's figures by point: means over its reports."""
    column = {name: sums.values[:, index] for index, name in enumerate(DEVICE)}
    reports = column["reports"]
    return {
        "busy": ratio(column["busy"], reports * 100),
        "profiling": ratio(column["profiling"], reports * 100),
        "queued": ratio(column["queued"], reports),
        "memory_bytes": ratio(column["memory"], reports, 0),
        "celsius": ratio(column["warmth"], column["warmth_n"] * 10, 1),
        "watts": ratio(column["power"], column["power_n"] * 1000, 1),
    }


def ratio(part: np.ndarray, whole: Any, digits: int = 3) -> list[float | None]:
    whole = np.asarray(whole, np.float64)
    known = whole > 0
    found = np.round(np.divide(part, whole, out=np.zeros(len(whole)), where=known), digits)
    return [value if there else None for value, there in zip(found.tolist(), known.tolist(), strict=True)]
