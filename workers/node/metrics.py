"""The box's Prometheus page: node daemon, executors and gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from .. import log
from ..protocol.frame_connection import FrameConnection, connect
from ..protocol.frames import Frame, Hello, Metrics, MetricsRequest

if TYPE_CHECKING:
    from .daemon import NodeDaemon

#: how long a process may take to give its page, in seconds
ANSWER_S = 1.5
_log = log.get("metrics")


class NodeMetrics(Collector):
    def __init__(self, daemon: NodeDaemon):
        self._daemon = daemon
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

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

    async def page(self) -> str:
        """The page as Prometheus text.

        Executors and gateways that do not answer in time, or with no metrics, are left out (see
        nereus_node_executor_up and nereus_node_gateway_up).
        """
        daemon = self._daemon
        sources = [("device", ref, executor.device.endpoint) for ref, executor in daemon.executors.items()]
        sources += [("gateway", name, f"unix:{socket}") for name, socket in daemon.gateways.items()]
        texts = await asyncio.gather(*(_text_of(endpoint, daemon.name) for _, _, endpoint in sources))
        page = Page(generate_latest(self._registry).decode())
        up = GaugeMetricFamily("nereus_node_gateway_up", "Whether the gateway answers.", labels=["gateway"])
        for (kind, name, _), text in zip(sources, texts, strict=True):
            answered = text is not None
            try:
                page.add(text or "", {kind: name})
            except ValueError as error:
                # One process's nonsense must not hide the others' figures.
                _log.error("bad_metrics", **{kind: name}, reason=str(error))
                answered = False
            if kind == "gateway":
                up.add_metric([name], float(answered))
        page.families |= {up.name: up} if daemon.gateways else {}
        return generate_latest(page).decode()


class Page(Collector):
    """Metrics of several processes; a family stands once, with the first's type."""

    def __init__(self, text: str):
        self.families: dict[str, Metric] = {}
        self.add(text, {})

    def add(self, text: str, labels: Mapping[str, str]) -> None:
        """Add a process's samples, marked with ``labels``.

        Raises:
            ValueError: not Prometheus text; nothing is added.
        """
        for family in list(text_string_to_metric_families(text)):
            merged = self.families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            merged.samples += [sample._replace(labels={**sample.labels, **labels}) for sample in family.samples]

    def collect(self) -> Iterable[Metric]:
        return self.families.values()


async def _text_of(endpoint: str, node: str) -> str | None:
    """A process's Prometheus text, or None when it does not answer in time."""
    page: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def received(_: FrameConnection, message: Frame, body: memoryview) -> None:
        if isinstance(message, Metrics) and not page.done():
            page.set_result(message.text)

    def closed(_: FrameConnection, error: Exception | None) -> None:
        if not page.done():
            page.set_exception(error or ConnectionResetError("closed by the process"))

    connection: FrameConnection | None = None
    try:
        async with asyncio.timeout(ANSWER_S):
            connection = await connect(endpoint, lambda: FrameConnection(Metrics, received, closed))
            connection.send(Hello("metrics", node))
            connection.send(MetricsRequest())
            return await page
    except Exception:
        # Any error concerns one process alone.
        return None
    finally:
        if connection is not None:
            connection.close()
