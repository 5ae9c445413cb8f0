"""What the device did: one second at a time for the control plane, and counters for Prometheus."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from workers.protocol.specs import DeviceStats, VariantStats

from .lanes import Batch
from .loaded import Loaded

#: share of a second's rows, and number of them, from which refusals are called an overload
OVERLOAD_SHARE = 0.05
OVERLOAD_ROWS = 3
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


@dataclass(slots=True)
class _Ran:
    application: str
    rows: int = 0
    batches: int = 0
    busy_s: float = 0.0


class Second:
    """What is counted towards the second under way."""

    def __init__(self, now: float):
        self._began = now
        self._busy_s = 0.0
        self._profiling_s = 0.0
        self._ran: dict[int, _Ran] = {}
        self._arrived: dict[str, int] = {}
        self._refused: dict[str, int] = {}

    def arrived(self, application: str, rows: int) -> None:
        self._arrived[application] = self._arrived.get(application, 0) + rows

    def refused(self, application: str, rows: int) -> None:
        """Rows refused as late or because the queue was full."""
        self._refused[application] = self._refused.get(application, 0) + rows

    def batch(self, batch: Batch, run_s: float) -> None:
        ran = self._ran.setdefault(batch.loaded.id, _Ran(batch.loaded.variant.application))
        ran.rows += batch.rows
        ran.batches += 1
        ran.busy_s += run_s
        self._busy_s += run_s

    def profiled(self, took_s: float) -> None:
        self._profiling_s += took_s

    def overloads(self) -> list[tuple[str, int, int]]:
        """(application, rows arrived, rows refused) where more was refused than chance explains."""
        return [
            (name, max(self._arrived.get(name, 0), refused), refused)
            for name, refused in self._refused.items()
            if refused >= max(OVERLOAD_ROWS, OVERLOAD_SHARE * self._arrived.get(name, 0))
        ]

    def close(
        self, now: float, device: str, queued_rows: int, memory_bytes: int, plan_version: int, loaded: dict[int, Loaded]
    ) -> DeviceStats:
        """The second that ends at ``now``."""
        elapsed = max(now - self._began, 1e-6)
        variants = tuple(
            VariantStats(
                variant=id,
                application=ran.application,
                rows=ran.rows,
                batches=ran.batches,
                busy_s=ran.busy_s,
                drift=loaded[id].ratio if id in loaded else 0.0,
            )
            for id, ran in sorted(self._ran.items())
        )
        return DeviceStats(
            device=device,
            busy=min(1.0, self._busy_s / elapsed),
            profiling=min(1.0, self._profiling_s / elapsed),
            queued_rows=queued_rows,
            memory_bytes=memory_bytes,
            plan_version=plan_version,
            variants=variants,
        )


class _QueueTimes(Collector):
    """Times from receipt to start by application. The library's own histogram takes a lock and a walk through its
    buckets for each query; here each batch is counted at once, by the event loop alone."""

    NAME, TEXT = "nereus_executor_queue_seconds", "Receipt to start."

    def __init__(self, device: str):
        self._device = device
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, application: str, seconds: list[float]) -> None:
        counts = self._counts.get(application)
        if counts is None:
            counts = self._counts[application] = [0] * (len(_SECONDS) + 1)
        for waited in seconds:
            counts[bisect_left(_SECONDS, waited)] += 1
        self._sums[application] = self._sums.get(application, 0.0) + sum(seconds)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self.NAME, self.TEXT, labels=("device", "application"))
        bounds = [floatToGoString(bound) for bound in (*_SECONDS, math.inf)]
        for application, counts in self._counts.items():
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric((self._device, application), buckets, self._sums[application])
        yield family


class Meters:
    """The executor's Prometheus metrics, in a registry of their own; each carries the device."""

    def __init__(self, device: str):
        self._registry = CollectorRegistry()
        self._device = device

        def make(kind, name, text, labels=(), **more):
            return kind(name, text, ("device", *labels), registry=self._registry, **more)

        self._queries = make(
            Counter,
            "nereus_executor_queries_total",
            "Queries answered, by outcome (ok, or the refusal's code).",
            ("application", "variant", "outcome"),
        )
        self._rows = make(
            Histogram,
            "nereus_executor_batch_rows",
            "Rows a batch.",
            ("variant",),
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
        )
        self._queue = _QueueTimes(device)
        self._registry.register(self._queue)
        self._run = make(Histogram, "nereus_executor_run_seconds", "Batch run times.", ("variant",), buckets=_SECONDS)
        self._busy = make(Counter, "nereus_executor_busy_seconds_total", "Time spent running batches.")
        self._profiling = make(Counter, "nereus_executor_profiling_seconds_total", "Time spent measuring.")
        self._residents = make(Gauge, "nereus_executor_warm_variants", "Warm variants, by role.", ("role",))
        self._depth = make(Gauge, "nereus_executor_queued_rows", "Rows that wait.")
        self._children: dict[tuple, object] = {}

    def _of(self, metric, *labels: str):
        # Looking a child up by its labels takes a lock and a tuple of strings each time; it is kept instead.
        key = (metric, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(self._device, *labels)
        return child

    def answered(self, application: str, variant: str, outcome: str, queries: int = 1) -> None:
        self._of(self._queries, application, variant, outcome).inc(queries)

    def batch(self, batch: Batch, run_s: float, started: float) -> None:
        variant = batch.loaded.variant.name
        self._of(self._rows, variant).observe(batch.rows)
        self._of(self._run, variant).observe(run_s)
        self._of(self._busy).inc(run_s)
        self._queue.observe(batch.loaded.variant.application, [started - query.arrived for query in batch.queries])

    def profiled(self, took_s: float) -> None:
        self._of(self._profiling).inc(took_s)

    def text(self, queued_rows: int, roles: dict[str, int]) -> str:
        """The exposition text."""
        self._of(self._depth).set(queued_rows)
        for role, count in roles.items():
            self._of(self._residents, role).set(count)
        return generate_latest(self._registry).decode()
