"""The gateway's Prometheus metrics."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from workers.counting import Counters, Histograms

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_DECISION = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 1e-3, 1e-2)


class GatewayMetrics:
    """One registry for each gateway, so that several may live in one process. Label values are bounded: applications
    and devices come from the control plane, outcomes from this code."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._queries = Counters(
            "nereus_gateway_queries",
            "Queries by how they ended: in_time, late, dropped, failed, cancelled",
            ("application", "outcome"),
        )
        self._invalid = Counter(
            "nereus_gateway_invalid_requests_total", "Requests refused as wrong", ("status",), registry=self.registry
        )
        self._latency = Histograms(
            "nereus_gateway_latency_seconds",
            "From request fully read to response handed to the socket",
            ("application",),
            _LATENCY,
        )
        self.decision = Histograms(
            "nereus_gateway_routing_decision_seconds",
            "Router.pick, or booking a query that is held",
            (),
            _DECISION,
        )
        self.rerouted = Counter(
            "nereus_gateway_rerouted_total", "Queries sent to another device after the first", registry=self.registry
        )
        self.in_flight = Gauge("nereus_gateway_in_flight", "Queries under way", registry=self.registry)
        self.held = Gauge("nereus_gateway_held", "Queries that wait for a device here", registry=self.registry)
        self.suspect_inputs = Gauge(
            "nereus_gateway_suspect_inputs", "Inputs remembered as seen at a crash", registry=self.registry
        )
        self._grants = Histograms("nereus_gateway_grant_rows", "Rows of the batches granted to devices", (), _ROWS)
        self._outstanding = Gauge(
            "nereus_gateway_outstanding", "Queries sent and not yet answered", ("device",), registry=self.registry
        )
        self.plan_version = Gauge(
            "nereus_gateway_plan_version", "The plan that all applications follow", registry=self.registry
        )
        self.ready = Gauge("nereus_gateway_ready", "1 when every planned application is warm", registry=self.registry)
        for counted in (self._queries, self._latency, self.decision, self._grants):
            self.registry.register(counted)

    def ended(self, application: str, outcome: str, count: int = 1) -> None:
        """Queries ended."""
        self._queries.add((application, outcome), count)

    def latencies(self, application: str, seconds: Sequence[float]) -> None:
        """Results took so long."""
        self._latency.observe_all((application,), seconds)

    def granted(self, rows: int) -> None:
        """A batch went to a device."""
        self._grants.observe((), rows)

    def invalid(self, status: int | str) -> None:
        """A request was refused as wrong, with this status of HTTP, or gRPC's by name."""
        self._invalid.labels(str(status)).inc()

    def outstanding(self, by_device: dict[str, int]) -> None:
        """Replace the gauges of all devices."""
        self._outstanding.clear()
        for device, count in by_device.items():
            self._outstanding.labels(device).set(count)

    def forget(self, applications: set[str]) -> None:
        """Drop the series of applications that no longer exist."""
        self._queries.forget(applications)
        self._latency.forget(applications)

    def text(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)
