"""The executor's Prometheus metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from workers.counting import Counters, Histograms

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class Meters:
    def __init__(self, device: str):
        self._registry = CollectorRegistry()

        def counters(name: str, text: str, *labels: str) -> Counters:
            made = Counters(name, text, ("device", *labels), (device,))
            self._registry.register(made)
            return made

        def histograms(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Histograms:
            made = Histograms(name, text, ("device", *labels), bounds, (device,))
            self._registry.register(made)
            return made

        self._queries = counters(
            "nereus_executor_queries",
            "Queries answered, by outcome (ok, or the refusal's code).",
            *("application", "variant", "outcome"),
        )
        self._rows = histograms("nereus_executor_batch_rows", "Rows a batch.", _ROWS, "variant")
        self._queue = histograms("nereus_executor_queue_seconds", "Receipt to start.", _SECONDS, "application")
        self._run = histograms("nereus_executor_run_seconds", "Batch run times.", _SECONDS, "variant")
        self._busy = counters("nereus_executor_busy_seconds", "Time spent running batches.")
        self._profiling = counters("nereus_executor_profiling_seconds", "Time spent measuring.")
        # Scraped before anything ran, these are 0 and not absent.
        for whole in (self._busy, self._profiling):
            whole.add((), 0.0)
        self._residents = Gauge(
            "nereus_executor_warm_variants", "Warm variants, by role.", ("device", "role"), registry=self._registry
        )
        self._depth = Gauge("nereus_executor_queued_rows", "Rows that wait.", ("device",), registry=self._registry)
        self._device = device

    def answered(self, application: str, variant: str, outcome: str, queries: int = 1) -> None:
        self._queries.add((application, variant, outcome), queries)

    def ran(self, variant: str, rows: int, run_s: float) -> None:
        self._rows.observe((variant,), rows)
        self._run.observe((variant,), run_s)
        self._busy.add((), run_s)

    def waited(self, application: str, seconds: float, queries: int = 1) -> None:
        self._queue.observe((application,), seconds, queries)

    def profiled(self, took_s: float) -> None:
        self._profiling.add((), took_s)

    def text(self, queued_rows: int, roles: dict[str, int]) -> str:
        self._depth.labels(self._device).set(queued_rows)
        for role, count in roles.items():
            self._residents.labels(self._device, role).set(count)
        return generate_latest(self._registry).decode()
