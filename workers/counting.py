"""Prometheus metrics that cost what a sum costs: plain numbers, turned into samples when somebody asks for them.

For paths on which a query has some tens of microseconds, of which a client library's lock and label lookup would take
one or two for each count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Counts(Collector):
    """A counter. ``by``: counts by label values; to be added to directly."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()):
        self._name, self._about, self._labels = name, about, tuple(labels)
        self.by: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, *labels: str, count: float = 1) -> None:
        """Count."""
        self.by[labels] = self.by.get(labels, 0) + count

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._about, labels=self._labels)
        for labels, count in self.by.items():
            family.add_metric(labels, count)
        yield family


class Distribution(Collector):
    """A histogram over ``bounds``, each the highest value of its bucket."""

    def __init__(self, name: str, about: str, bounds: Sequence[float], labels: Sequence[str] = ()):
        self._name, self._about, self._labels = name, about, tuple(labels)
        self._bounds = tuple(bounds)
        #: by label values: how many were in each bucket, the last one open, and then their sum
        self.by: dict[tuple[str, ...], list[float]] = {}
        if not labels:
            self._of(())

    def _of(self, labels: tuple[str, ...]) -> list[float]:
        cells = self.by.get(labels)
        if cells is None:
            cells = self.by[labels] = [0] * (len(self._bounds) + 2)
        return cells

    def observe(self, value: float, count: int = 1, labels: tuple[str, ...] = ()) -> None:
        """Take in a value, or as many that are alike."""
        cells = self._of(labels)
        cells[bisect_left(self._bounds, value)] += count
        cells[-1] += value * count

    def observe_all(self, values: Sequence[float], labels: tuple[str, ...] = ()) -> None:
        """Take in values."""
        cells, bounds = self._of(labels), self._bounds
        for value in values:
            cells[bisect_left(bounds, value)] += 1
        cells[-1] += sum(values)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for labels, cells in self.by.items():
            total, buckets = 0.0, []
            for name, count in zip(names, cells[:-1], strict=True):
                total += count
                buckets.append((name, total))
            family.add_metric(labels, buckets, cells[-1])
        yield family
