"""The metrics of one of several gateways, marked with its name."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from .metrics import GatewayMetrics


class LabelledMetrics(GatewayMetrics):
    """Samples of processes that share a port are never taken for one series: each has its gateway's name."""

    def __init__(self, gateway: str):
        super().__init__()
        self._gateway = gateway

    def text(self) -> bytes:
        """The exposition text."""
        return generate_latest(_Labelled(self.registry, self._gateway))


class _Labelled(Collector):
    def __init__(self, registry: Collector, gateway: str):
        self._registry = registry
        self._gateway = gateway

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            marked = Metric(family.name, family.documentation, family.type)
            marked.samples = [
                sample._replace(labels={**sample.labels, "gateway": self._gateway}) for sample in family.samples
            ]
            yield marked
