"""The node daemon's own Prometheus metrics, read from its state when asked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from .. import log
from . import exposition, gateways

if TYPE_CHECKING:
    from .daemon import NodeDaemon


class _DaemonCollector(Collector):
    def __init__(self, daemon: NodeDaemon):
        self._daemon = daemon

    def collect(self) -> Iterable[Metric]:
        daemon = self._daemon
        yield GaugeMetricFamily(
            "nereus_node_link_up", "Whether the control plane is connected.", value=float(daemon.link.up)
        )
        up = GaugeMetricFamily("nereus_node_executor_up", "Whether the device's executor answers.", labels=["device"])
        starts = CounterMetricFamily(
            "nereus_node_executor_starts", "Starts of the device's executor.", labels=["device"]
        )
        for ref, executor in daemon.executors.items():
            up.add_metric([ref], float(executor.up))
            starts.add_metric([ref], executor.starts)
        yield up
        yield starts
        yield GaugeMetricFamily("nereus_node_cache_bytes", "Bytes in the model cache.", value=daemon.cache.size_bytes())
        yield CounterMetricFamily(
            "nereus_node_fetches", "Files fetched into the model cache.", value=daemon.cache.fetched
        )
        yield CounterMetricFamily(
            "nereus_node_fetch_failures", "Files that could not be fetched.", value=daemon.cache.failed
        )
        dropped = CounterMetricFamily(
            "nereus_node_messages_dropped", "Messages given up while the control plane was away.", labels=["kind"]
        )
        for kind, count in daemon.link.dropped.items():
            dropped.add_metric([kind], count)
        yield dropped


class NodeMetrics:
    """Renders one page of metrics for the box.

    It has the daemon's, its executors' and those of the box's gateways.
    """

    def __init__(self, daemon: NodeDaemon):
        self._daemon = daemon
        self._registry = CollectorRegistry()
        self._registry.register(_DaemonCollector(daemon))
        ProcessCollector(registry=self._registry)
        self._log = log.get("metrics")

    async def page(self) -> str:
        """Return the page as Prometheus text.

        Executors and gateways that do not answer in time are left out (see nereus_node_executor_up and
        nereus_node_gateway_up).
        """
        daemon = self._daemon
        refs, names = list(daemon.executors), list(daemon.gateways)
        texts = await asyncio.gather(
            *map(daemon.metrics, refs), *(gateways.metrics(daemon.gateways[name], daemon.name) for name in names)
        )
        devices = self._readable("device", refs, texts[: len(refs)])
        beside = self._readable("gateway", names, texts[len(refs) :])
        page = exposition.merge(generate_latest(self._registry).decode(), devices)
        return exposition.merge(page + _gateways_up(names, beside), beside, "gateway") if names else page

    def _readable(self, kind: str, names: Sequence[str], texts: Sequence[str | None]) -> dict[str, str]:
        """Pages by name, without those that are missing or no Prometheus text."""
        pages = {}
        for name, text in zip(names, texts, strict=True):
            if text is None:
                continue
            try:
                exposition.merge("", {name: text})
            except ValueError as error:
                # One process's nonsense must not hide the others' figures.
                self._log.error("bad_metrics", **{kind: name}, reason=str(error))
                continue
            pages[name] = text
        return pages


def _gateways_up(names: Sequence[str], answered: Collection[str]) -> str:
    registry = CollectorRegistry()
    up = Gauge("nereus_node_gateway_up", "Whether the gateway answers.", ["gateway"], registry=registry)
    for name in names:
        up.labels(name).set(name in answered)
    return generate_latest(registry).decode()
