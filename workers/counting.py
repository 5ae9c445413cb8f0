"""Counters and histograms for Prometheus as plain numbers.

They become metrics on a scrape. For one thread: the library's own counters take a lock at each increment.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Counters(Collector):
    """One counter with labels; ``first``: values of those that all series share."""

    def __init__(self, name: str, text: str, labels: Sequence[str], first: Sequence[str] = ()):
        self._family = name, text, tuple(labels)
        self._first = tuple(first)
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, labels: tuple[str, ...], more: float = 1) -> None:
        values = self._values
        values[labels] = values.get(labels, 0) + more

    def forget(self, first: Collection[str]) -> None:
        """Drop the series with one of these values of the first label."""
        for labels in [labels for labels in self._values if labels[0] in first]:
            del self._values[labels]

    def collect(self) -> Iterator[CounterMetricFamily]:
        name, text, labels = self._family
        family = CounterMetricFamily(name, text, labels=labels)
        for values, count in self._values.items():
            family.add_metric((*self._first, *values), count)
        yield family


class Histograms(Collector):
    """One histogram with labels.

    Args:
        bounds: upper bounds of its buckets, ascending, without infinity.
        first: values of the first labels, which all series share.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float], first: Sequence[str] = ()):
        self._family = name, text, tuple(labels)
        self._bounds = tuple(bounds)
        self._first = tuple(first)
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        if not labels:
            self._of(())

    def _of(self, labels: tuple[str, ...]) -> list[int]:
        counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
        self._sums[labels] = 0.0
        return counts

    def observe(self, labels: tuple[str, ...], value: float, times: int = 1) -> None:
        """Count a value that was seen ``times`` times."""
        counts = self._counts.get(labels) or self._of(labels)
        counts[bisect_left(self._bounds, value)] += times
        self._sums[labels] += value * times

    def observe_all(self, labels: tuple[str, ...], values: Sequence[float]) -> None:
        counts, bounds = self._counts.get(labels) or self._of(labels), self._bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sums[labels] += sum(values)

    def forget(self, first: Collection[str]) -> None:
        for labels in [labels for labels in self._counts if labels[0] in first]:
            del self._counts[labels], self._sums[labels]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        name, text, labels = self._family
        family = HistogramMetricFamily(name, text, labels=labels)
        bounds = [floatToGoString(bound) for bound in (*self._bounds, math.inf)]
        for values, counts in self._counts.items():
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric((*self._first, *values), buckets, self._sums[values])
        yield family
