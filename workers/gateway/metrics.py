"""The gateway's Prometheus metrics."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from prometheus_client import Counter, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
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
        self.totals: Mapping[str, ApplicationTotals] = {}
        self._invalid = Counter(
            "nereus_gateway_invalid_requests_total",
            "Requests refused before they counted as queries",
            ("status",),
            registry=None,
        )
        self.latency = Histograms(
            "nereus_gateway_latency_seconds",
            "From request fully read to response handed to the socket",
            ("application",),
            _LATENCY,
        )
        self.rerouted = Counter(
            "nereus_gateway_rerouted_total", "Queries sent to another device after the first", registry=None
        )
        self.batch_rows = Histograms("nereus_gateway_grant_rows", "Rows of dispatched batches", (), _ROWS)
        self._gauges: list[Metric] = []

    def invalid(self, status: int | str) -> None:
        """A request was refused before it counted as a query, with this status of HTTP, or of gRPC by name."""
        self._invalid.labels(str(status)).inc()

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
        counted = [self._invalid, self.rerouted, self.latency, self.batch_rows]
        for family in (queries, accuracy, *self._gauges, *itertools.chain(*(one.collect() for one in counted))):
            if self._gateway is not None:
                family.samples = [
                    sample._replace(labels={**sample.labels, "gateway": self._gateway}) for sample in family.samples
                ]
            yield family

    def text(self, status: CoreStatus, in_flight: int, ready: bool, core_here: bool) -> bytes:
        """Render all metrics.

        Args:
            core_here: the core is in this process. Only then are its own gauges among them, so that sums over processes
                count them once.
        """
        gauge = GaugeMetricFamily
        self._gauges = [
            gauge("nereus_gateway_in_flight", "Queries in flight", in_flight),
            gauge("nereus_gateway_plan_version", "The plan that all applications follow", status.adopted or 0),
            gauge("nereus_gateway_ready", "1 when every planned application is warm", ready),
        ]
        if core_here:
            outstanding = gauge("nereus_gateway_outstanding", "Queries sent and not yet answered", labels=("device",))
            for device, known in status.devices.items():
                outstanding.add_metric((device,), known.outstanding)
            self._gauges += [gauge("nereus_gateway_held", "Queries that wait for a device", status.held), outstanding]
        return generate_latest(self)
