"""Windows of arrivals, drawn from those that were recorded. Pure.

Gateways report how many queries and items of each application arrived in each second, and no more. A window of such
arrivals is a stretch of the recorded seconds in their order, of all applications alike, so that their rise and fall and
what they have in common stay; within a second queries come at random moments, for when they came is not recorded.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.simulation.arrivals import Trace

#: seconds of arrivals that windows are made of: older ones say little about the next
RECORD_S = 120
#: seconds below which a record says too little, so that arrivals are Poisson
LEAST_S = 10


@dataclass(frozen=True)
class Recorded:
    """``queries``: counts by second; ``rows``: items a query on average."""

    queries: Mapping[str, tuple[float, ...]]
    rows: Mapping[str, float]

    @property
    def seconds(self) -> int:
        return max(map(len, self.queries.values()), default=0)

    def rate(self, application: str) -> float:
        counts = self.queries.get(application, ())
        return sum(counts) / len(counts) * self.rows.get(application, 1.0) if counts else 0.0

    def history(self, factors: Mapping[str, float]) -> list[tuple[int, dict[str, float]]]:
        """Items by second before second 0, times factors, as demand is estimated from."""
        return [
            (
                second - self.seconds,
                {
                    name: counts[second] * self.rows.get(name, 1.0) * factors.get(name, 1.0)
                    for name, counts in self.queries.items()
                },
            )
            for second in range(self.seconds)
        ]


def record(seconds: Iterable[tuple[int, Mapping[str, tuple[float, float]]]], applications: Sequence[str]) -> Recorded:
    """Record gateways' reports from the first second in which anything arrived.

    Silence before a load is no part of it.

    Args:
        seconds: (t, {application: (queries, items)}), oldest first.
    """
    listed = [counts for _, counts in seconds][-RECORD_S:]
    came = [any(counts[name][0] > 0 for name in applications if name in counts) for counts in listed]
    listed = listed[came.index(True) if True in came else len(listed) :]
    queries = {name: tuple(counts.get(name, (0.0, 0.0))[0] for counts in listed) for name in applications}
    rows = {}
    for name in applications:
        items = sum(counts.get(name, (0.0, 0.0))[1] for counts in listed)
        rows[name] = max(1.0, items / sum(queries[name])) if sum(queries[name]) > 0 else 1.0
    return Recorded(queries, rows)


def imagined(recorded: Recorded, rates: Mapping[str, float]) -> Recorded:
    length = max(recorded.seconds, LEAST_S)
    numbers = np.random.default_rng(1)
    queries = dict(recorded.queries)
    for name, rate in rates.items():
        if recorded.seconds < LEAST_S or not any(queries.get(name, ())):
            queries[name] = tuple(numbers.poisson(rate, length).astype(float).tolist())
    queries = {name: counts if len(counts) == length else (0.0,) * length for name, counts in queries.items()}
    return Recorded(queries, recorded.rows)


def trace(recorded: Recorded, seconds: int, factors: Mapping[str, float], seed: int, first: int | None = None) -> Trace:
    """Return the arrivals of a window: a stretch of the record.

    It runs from a random second on, and goes on at the record's beginning where that ends. An item is an arrival; those
    of one query come together.

    Args:
        seconds: of the window.
        factors: of arrivals, by application.
        seed: the same one gives the same window; applications have random numbers of their own.
        first: the second of the record that it begins with; None: a random one.
    """
    names = tuple(recorded.queries)
    if first is None:
        first = random.Random(f"{seed}:first").randrange(max(1, recorded.seconds))
    arrivals: list[tuple[float, int]] = []
    for index, name in enumerate(names):
        numbers = random.Random(f"{seed}:{name}")
        counts, rows, factor = recorded.queries[name], recorded.rows.get(name, 1.0), factors.get(name, 1.0)
        if not counts:
            continue
        for second in range(seconds):
            count = _whole(counts[(first + second) % len(counts)] * factor, numbers)
            for _ in range(count):
                at = second + numbers.random()
                arrivals += [(at, index)] * _whole(rows, numbers)
    arrivals.sort()
    return Trace(names, [at for at, _ in arrivals], [index for _, index in arrivals])


def _whole(value: float, numbers: random.Random) -> int:
    low = math.floor(value)
    return low + (numbers.random() < value - low)
