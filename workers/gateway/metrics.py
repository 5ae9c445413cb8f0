"""The gateway's Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from workers.counting import Histograms
from workers.protocol.gateways import ApplicationTotals, CoreStatus

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_OUTCOMES = ("in_time", "late", "dropped", "failed", "cancelled")


class GatewayMetrics(Collector):
    """Metrics of one process.

    Label values are bounded: applications and devices come from the control plane, outcomes from this code.

    Args:
        gateway: label of all samples where several processes share a port; None: there is only one.

    Attributes:
        totals: ends of queries by application, counted elsewhere.
    """

    def __init__(self, gateway: str | None = None) -> None:
        self._gateway = gateway
        self.registry = CollectorRegistry()
        self.totals: Mapping[str, ApplicationTotals] = {}
        self._invalid = Counter(
            "nereus_gateway_invalid_requests_total",
            "Requests refused before they counted as queries",
            ("status",),
            registry=self.registry,
        )
        self.latency = Histograms(
            "nereus_gateway_latency_seconds",
            "From request fully read to response handed to the socket",
            ("application",),
            _LATENCY,
        )
        self.rerouted = Counter(
            "nereus_gateway_rerouted_total", "Queries sent to another device after the first", registry=self.registry
        )
        self.in_flight = Gauge("nereus_gateway_in_flight", "Queries in flight", registry=self.registry)
        self.held = Gauge("nereus_gateway_held", "Queries that wait for a device", registry=self.registry)
        self.batch_rows = Histograms("nereus_gateway_grant_rows", "Rows of dispatched batches", (), _ROWS)
        self._outstanding = Gauge(
            "nereus_gateway_outstanding", "Queries sent and not yet answered", ("device",), registry=self.registry
        )
        self.plan_version = Gauge(
            "nereus_gateway_plan_version", "The plan that all applications follow", registry=self.registry
        )
        self.ready = Gauge("nereus_gateway_ready", "1 when every planned application is warm", registry=self.registry)
        self.registry.register(self.latency)
        self.registry.register(self.batch_rows)

    def invalid(self, status: int | str) -> None:
        """A request was refused before it counted as a query, with this status of HTTP, or of gRPC by name."""
        self._invalid.labels(str(status)).inc()

    def refresh(self, status: CoreStatus, in_flight: int, ready: bool, core_here: bool) -> None:
        """Update all gauges.

        Args:
            core_here: the core is in this process. Only then are its own gauges updated, so that sums over processes
                count them once.
        """
        self.in_flight.set(in_flight)
        self.plan_version.set(status.adopted or 0)
        self.ready.set(ready)
        if core_here:
            self.held.set(status.held)
            self._outstanding.clear()
            for device, known in status.devices.items():
                self._outstanding.labels(device).set(known.outstanding)

    def collect(self) -> Iterator[Metric]:
        queries = CounterMetricFamily(
            "nereus_gateway_queries",
            f"Queries by how they ended: {', '.join(_OUTCOMES)}",
            labels=("application", "outcome"),
        )
        accuracy = CounterMetricFamily(
            "nereus_gateway_accuracy_percent",
            "Accuracies of queries answered in time, added up: in the application's metric, and of its best variant",
            labels=("application", "of"),
        )
        for application, total in self.totals.items():
            accuracy.add_metric((application, "metric"), total.accuracy_sum)
            accuracy.add_metric((application, "best"), total.normalized_sum)
            for outcome in _OUTCOMES:
                if count := getattr(total, outcome):
                    queries.add_metric((application, outcome), count)
        for family in (queries, accuracy, *self.registry.collect()):
            if self._gateway is not None:
                family.samples = [
                    sample._replace(labels={**sample.labels, "gateway": self._gateway}) for sample in family.samples
                ]
            yield family

    def text(self) -> bytes:
        return generate_latest(self)
