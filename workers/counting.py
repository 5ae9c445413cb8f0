"""Counters and histograms for Prometheus as plain numbers.

They become metrics on a scrape. For one thread: the library's own counters take a lock at each increment.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class _Series(Collector):
    """One metric; ``first``: values of the first labels, which all of its series share."""

    def __init__(self, name: str, text: str, labels: Sequence[str], first: Sequence[str] = ()):
        self._family = name, text, tuple(labels)
        self._first = tuple(first)
        self._values: dict[tuple[str, ...], Any] = {}

    def forget(self, first: Collection[str]) -> None:
        """Drop the series with one of these values of the first label that differs."""
        for labels in [labels for labels in self._values if labels[0] in first]:
            del self._values[labels]


class Counters(_Series):
    def add(self, labels: tuple[str, ...], more: float = 1) -> None:
        values = self._values
        values[labels] = values.get(labels, 0) + more

    def collect(self) -> Iterator[CounterMetricFamily]:
        name, text, labels = self._family
        family = CounterMetricFamily(name, text, labels=labels)
        for values, count in self._values.items():
            family.add_metric((*self._first, *values), count)
        yield family


class Histograms(_Series):
    """``bounds``: upper bounds of the buckets, ascending, without infinity."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float], first: Sequence[str] = ()):
        super().__init__(name, text, labels, first)
        self._bounds = tuple(bounds)
        if not labels:
            self._of(())

    def _of(self, labels: tuple[str, ...]) -> list[float]:
        """Counts by bucket, and the sum behind them."""
        counts = self._values[labels] = [0] * (len(self._bounds) + 1) + [0.0]
        return counts

    def observe(self, labels: tuple[str, ...], value: float, times: int = 1) -> None:
        """Count a value that was seen ``times`` times."""
        counts = self._values.get(labels) or self._of(labels)
        counts[bisect_left(self._bounds, value)] += times
        counts[-1] += value * times

    def observe_all(self, labels: tuple[str, ...], values: Sequence[float]) -> None:
        counts, bounds = self._values.get(labels) or self._of(labels), self._bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        counts[-1] += sum(values)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        name, text, labels = self._family
        family = HistogramMetricFamily(name, text, labels=labels)
        bounds = [floatToGoString(bound) for bound in (*self._bounds, math.inf)]
        for values, (*counts, total) in self._values.items():
            family.add_metric((*self._first, *values), list(zip(bounds, accumulate(counts), strict=True)), total)
        yield family
