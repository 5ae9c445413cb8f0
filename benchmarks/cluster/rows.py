"""The rows of a cluster: boxes are lost, divided, restarted and upgraded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from appliance.demo.rest import expect
from benchmarks.faults.checker import Query
from benchmarks.faults.rows import Expected, Probe, Row
from benchmarks.growth import Verdict
from tools.waiting import eventually

from . import simulated
from .site import NODES, PERIOD_S, Box, ClusterSite

NODE = "n1"

# --- faults -----------------------------------------------------------------------------------------------------------


@contextmanager
def lost(name: str, site: ClusterSite) -> Iterator[None]:
    """A box loses its network, without a word."""
    site.network.cut(name)
    yield
    site.network.mend()


@contextmanager
def core_lost(site: ClusterSite) -> Iterator[None]:
    """The same of the gateway whose core leads."""
    with lost(site.leading()[0].name, site):
        yield


@contextmanager
def divided(site: ClusterSite) -> Iterator[None]:
    """The leading core is cut off from half of the nodes; the other core still reaches all."""
    site.network.divide([site.leading()[0].name], [node.name for node in site.node_boxes[: NODES // 2]])
    yield
    site.network.mend()


@contextmanager
def restarted(site: ClusterSite) -> Iterator[None]:
    for gateway in site.gateway_boxes:
        _restart_gateway(gateway)
    for node in site.node_boxes:
        _restart_node(site, node)
    yield


@contextmanager
def upgraded(site: ClusterSite) -> Iterator[None]:
    control = site.control
    control.again()
    eventually(site.linked, why="all members are back", of=[control])
    for gateway in site.gateway_boxes:
        _restart_gateway(gateway)
        control.run("member", "gateway", f"{gateway.name}-gateway", "--wait", "120")
    for node in site.node_boxes:
        path = f"/nodes/{node.name}/"
        with site.rest() as rest:
            expect(rest.post(path + "cordon/"), f"cordoning {node.name}", 200, 201, 204)
            eventually(lambda rest=rest, path=path: rest.get(path).json()["drained"], why=f"{node.name} is drained")
        _restart_node(site, node)
        with site.rest() as rest:
            expect(rest.delete(path + "cordon/"), f"uncordoning {node.name}", 200, 204)
        control.run("member", "node", node.name, "--wait", "120")
    yield


def _restart_gateway(gateway: Box) -> None:
    gateway.again()
    eventually(lambda: gateway.health().get("status") == "ready", why=f"{gateway.name} is ready", of=[gateway])


def _restart_node(site: ClusterSite, node: Box) -> None:
    node.again()
    gateway = site.gateway_boxes[0]
    eventually(lambda: _devices_of(node, gateway.devices()), why=f"{node.name} serves", of=[node])
    node.settle()


def _devices_of(node: Box, devices: set[str]) -> set[str]:
    return {device for device in devices if device.startswith(f"{node.name}/")}


@contextmanager
def measured(site: ClusterSite) -> Iterator[None]:
    began, before_s = time.monotonic(), site.run_s()
    yield
    site.span, site.ran_s = (began, time.monotonic()), site.run_s() - before_s


def compared(site: ClusterSite, queries: Sequence[Query]) -> Verdict:
    began, over = site.span
    meanwhile = [one for one in queries if began <= one.sent.at < over]
    return simulated.compare(meanwhile, site.wanted, site.served, site.ran_s, PERIOD_S)


# --- probes -----------------------------------------------------------------------------------------------------------


def planned_without(site: ClusterSite) -> Probe:
    node, gateway = site.boxes[NODE], site.gateway_boxes[0]
    return lambda: not _devices_of(node, gateway.devices() | site.planned())


def planned_again(site: ClusterSite) -> Probe:
    node = site.boxes[NODE]
    return lambda: _devices_of(node, site.planned())


def linked_and_planned(site: ClusterSite) -> Probe:
    newest = site.plans.newest()

    def back() -> bool:
        site.plans.new()
        return site.linked() and site.plans.newest() != newest

    return back


def one_core(site: ClusterSite) -> Probe:
    everywhere = {device for device, _ in site.served.devices}
    return lambda: all(box.devices() == everywhere for box in site.gateway_boxes)


_KINDS = {"site": ClusterSite, "afterwards": ClusterSite.one_core_each}
_ALL = (
    Row(
        "node-lost", "a node's network gone for 20 s; back: until a plan is without it",
        partial(lost, NODE), Expected(back_s=5), 20, back=planned_without, from_start=True, **_KINDS,
    ),
    Row(
        "node-back", "the same; back: until a plan has it again", partial(lost, NODE), Expected(back_s=10), 20,
        back=planned_again, **_KINDS,
    ),
    Row(
        "core-lost", "the leading gateway's box gone for 20 s", core_lost, Expected(lost_s=3, served_s=3), 20,
        cuts=True, from_start=True, **_KINDS,
    ),
    Row(
        "control-lost", "the control box gone for 2 minutes; back: until all members are linked and a plan is made",
        partial(lost, "control"), Expected(back_s=10), 120, back=linked_and_planned, **_KINDS,
    ),
    Row(
        "divided", "the leading core cut off from half of the nodes for 60 s; back: until one core has all again",
        divided, Expected(back_s=10), 60, back=one_core, **_KINDS,
    ),
    Row(
        "restarted", "gateways and nodes restart, one after the other, without notice", restarted,
        Expected(), 0, cuts=True, from_start=True, **_KINDS,
    ),
    Row(
        "upgraded", "control, gateways, nodes restart after cordon and drain", upgraded, Expected(), 0, cuts=True,
        from_start=True, **_KINDS,
    ),
    Row(
        "simulated", "nothing, for 60 s; the same queries simulated", measured, Expected(),
        simulated.SETTLE_S + 60, site=ClusterSite, afterwards=compared,
    ),
)  # fmt: skip
ROWS = {row.name: row for row in _ALL}
