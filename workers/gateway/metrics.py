"""The gateway's Prometheus metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_DECISION = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 1e-3, 1e-2)


class GatewayMetrics:
    """One registry for each gateway, so that several may live in one process. Label values are bounded: applications
    and devices come from the control plane, outcomes from this code."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._queries = Counter(
            "nereus_gateway_queries_total",
            "Queries by how they ended: in_time, late, dropped, failed, cancelled",
            ("application", "outcome"),
            registry=self.registry,
        )
        self._invalid = Counter(
            "nereus_gateway_invalid_requests_total", "Requests refused as wrong", ("status",), registry=self.registry
        )
        self._latency = Histogram(
            "nereus_gateway_latency_seconds",
            "From request fully read to response handed to the socket",
            ("application",),
            buckets=_LATENCY,
            registry=self.registry,
        )
        self.decision = Histogram(
            "nereus_gateway_routing_decision_seconds",
            "Router.pick, or booking a query that is held",
            buckets=_DECISION,
            registry=self.registry,
        )
        self.rerouted = Counter(
            "nereus_gateway_rerouted_total", "Queries sent to another device after the first", registry=self.registry
        )
        self.in_flight = Gauge("nereus_gateway_in_flight", "Queries under way", registry=self.registry)
        self.held = Gauge("nereus_gateway_held", "Queries that wait for a device here", registry=self.registry)
        self._grants = Histogram(
            "nereus_gateway_grant_rows", "Rows of the batches granted to devices", buckets=_ROWS, registry=self.registry
        )
        self._outstanding = Gauge(
            "nereus_gateway_outstanding", "Queries sent and not yet answered", ("device",), registry=self.registry
        )
        self.plan_version = Gauge(
            "nereus_gateway_plan_version", "The plan that all applications follow", registry=self.registry
        )
        self.ready = Gauge("nereus_gateway_ready", "1 when every planned application is warm", registry=self.registry)
        # Looking a label up costs more than counting: each combination is looked up once.
        self._cached: dict[tuple[str, str], Counter] = {}
        self._cached_latency: dict[str, Histogram] = {}

    def ended(self, application: str, outcome: str) -> None:
        """A query ended."""
        known = self._cached.get((application, outcome))
        if known is None:
            known = self._cached[application, outcome] = self._queries.labels(application, outcome)
        known.inc()

    def latency(self, application: str, seconds: float) -> None:
        """A result took so long."""
        known = self._cached_latency.get(application)
        if known is None:
            known = self._cached_latency[application] = self._latency.labels(application)
        known.observe(seconds)

    def granted(self, rows: int) -> None:
        """A batch went to a device."""
        self._grants.observe(rows)

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
        for application, outcome in [key for key in self._cached if key[0] in applications]:
            del self._cached[application, outcome]
            self._queries.remove(application, outcome)
        for application in applications & self._cached_latency.keys():
            del self._cached_latency[application]
            self._latency.remove(application)

    def text(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)
