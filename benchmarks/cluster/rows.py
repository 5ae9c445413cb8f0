"""Faults of the cluster under load, and the figures that are taken of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from appliance.demo.manifest import DemoApplication
from appliance.demo.rest import expect
from benchmarks.faults.history import Event

from . import simulated
from .attempts import Asked, asked
from .boxes import PERIOD_S, Box, Cluster, wait_for
from .network import Network
from .simulated import Served
from .watch import Watch, connected, health, ready

#: seconds that what is measured may take; beyond, it is said not to have happened
LONGEST_S = 120.0
#: the same of a core that loses devices, which samples may miss
GONE_S = 5.0


@dataclass
class Site:
    """A cluster, with what it serves."""

    network: Network
    cluster: Cluster
    wanted: Sequence[DemoApplication]
    served: Served


@dataclass
class Figures:
    """The findings of a row.

    Attributes:
        cut: from when to when connections of clients may break.
        counts: named spans whose queries are counted.
        gateway: the place of the gateway whose clients are counted, too.
        look: finds more in the history.
    """

    values: dict[str, str]
    cut: tuple[float, float] = (float("inf"), float("inf"))
    counts: Sequence[tuple[str, float, float]] = ()
    gateway: int | None = None
    look: Callable[[Sequence[Asked]], dict[str, str]] | None = None

    def count(self, events: Iterable[Event]) -> None:
        """Add how queries ended."""
        queries = asked(events)
        if self.look is not None:
            self.values |= self.look(queries)
        for name, start, end in self.counts:
            some = [one for one in queries if start <= one.first.sent.at < end]
            self.values[name] = ends(some)
            if self.gateway is not None:
                mine = [one for one in some if one.place == self.gateway]
                self.values[f"{name}, clients of the other gateway"] = ends(mine)
                self.values[f"{name}, the other gateway refused for"] = f"{refused_s(mine):.1f} s"


def ends(queries: Sequence[Asked]) -> str:
    """Say how queries ended at the first address, and at the second where needed."""
    again = [one for one in queries if one.first.end.end != "ok"]
    lost = [one for one in again if one.last.end.end != "ok"]
    slowest = max((one.took_s for one in queries), default=0.0)
    text = f"{len(queries)} queries, {len(again)} not at once, {len(lost)} not at all, slowest {slowest:.2f} s"
    why = sorted({one.last.end.note[:100] for one in lost})
    return text + (f" ({'; '.join(why[:3])})" if why else "")


def refused_s(queries: Sequence[Asked]) -> float:
    """Return the time for which the first address left queries unanswered, in seconds.

    It lasts from the first to the last of them.
    """
    failed = [one.first.sent.at for one in queries if one.first.end.end != "ok"]
    return max(failed) - min(failed) if failed else 0.0


def undisturbed(site: Site, watch: Watch, seconds: float) -> Figures:
    """Nothing happens."""
    began = time.monotonic()
    time.sleep(seconds)
    return Figures({}, counts=[("load", began, time.monotonic())])


def node_lost(site: Site, watch: Watch, seconds: float) -> Figures:
    """A node's box loses its network, without a word."""
    node, gateway = site.cluster.nodes[0], site.cluster.gateways[0]
    own = {device for device in connected(gateway) if device.startswith(f"{node.name}/")}
    began, values = time.monotonic(), {}
    site.network.cut(node.name)
    values["core gave it up after"] = _until(lambda: not own & connected(gateway), began)
    values["plan without it after"] = _until(lambda: not own & planned_on(watch), began)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    back = time.monotonic()
    site.network.mend()
    values["core has it again after"] = _until(lambda: own <= connected(gateway), back)
    values["back in the plan after"] = _until(lambda: own <= planned_on(watch), back)
    return Figures(values, counts=[("load", began, time.monotonic())])


def core_lost(site: Site, watch: Watch, seconds: float) -> Figures:
    """The box of the core that leads loses its network, without a word."""
    leading, other = _leading(site)
    began = time.monotonic()
    site.network.cut(leading.name)
    time.sleep(seconds)
    back, values = time.monotonic(), {}
    site.network.mend()
    values["its front serves again after"] = _until(lambda: ready(leading), back)
    time.sleep(3)
    settled = time.monotonic()
    time.sleep(5)
    counts = [("while it was lost", began, back), ("after its return", settled, time.monotonic())]
    return Figures(values, (began - 5, settled), counts, site.cluster.gateways.index(other))


def control_lost(site: Site, watch: Watch, seconds: float) -> Figures:
    """The control box loses its network."""
    began = time.monotonic()
    site.network.cut(site.cluster.control.name)
    time.sleep(seconds)
    back = time.monotonic()
    site.network.mend()
    newest = watch.plans.newest()
    values = {"all members linked after": _until(lambda: linked(site.cluster), back)}
    values["a new plan after"] = _until(lambda: watch.plans.newest() != newest, back)
    return Figures(values, counts=[("load", began, time.monotonic())])


def divided(site: Site, watch: Watch, seconds: float) -> Figures:
    """Cut the leading core off from half of the nodes.

    The other core still reaches all.
    """
    leading, other = _leading(site)
    far = [node.name for node in site.cluster.nodes[: len(site.cluster.nodes) // 2]]
    everywhere = connected(leading)
    began = time.monotonic()
    site.network.divide([leading.name], far)
    values = {"the first core gave them up after": _until(lambda: connected(leading) < everywhere, began, GONE_S)}
    values["fronts reach every device after"] = _until(
        lambda: connected(leading) | connected(other) == everywhere, began, seconds
    )
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    values["cores of the two fronts"] = ", ".join(_core(gateway) for gateway in (leading, other))
    back = time.monotonic()
    site.network.mend()
    values["one core has all devices after"] = _until(
        lambda: connected(leading) == connected(other) == everywhere, back
    )
    return Figures(values, counts=[("divided", began, back), ("healing", back, time.monotonic())])


def restarted(site: Site, watch: Watch, seconds: float) -> Figures:
    """Restart gateways and nodes one after the other, without notice."""
    began = time.monotonic()
    for gateway in site.cluster.gateways:
        _restart_gateway(gateway)
        time.sleep(seconds)
    for node in site.cluster.nodes:
        _restart_node(site, node)
        time.sleep(seconds)
    over = time.monotonic()
    return Figures({"took": f"{over - began:.0f} s"}, (began, over), [("load", began, over)])


def upgraded(site: Site, watch: Watch, seconds: float) -> Figures:
    """Restart all boxes as in a rolling upgrade.

    The control box goes first, then the gateways, then the nodes. Each node is cordoned and drained before.
    """
    began, control = time.monotonic(), site.cluster.control
    control.stop()
    control.start()
    wait_for(lambda: linked(site.cluster), "all members are back", control)
    for gateway in site.cluster.gateways:
        _restart_gateway(gateway)
        control.run("manage.py", "member", "gateway", f"{gateway.name}-gateway", "--wait", "120")
    for node in site.cluster.nodes:
        _cordon(site.cluster, node)
        _restart_node(site, node)
        with site.cluster.rest() as rest:
            expect(rest.delete(f"/nodes/{node.name}/cordon/"), f"uncordoning {node.name}", 200, 204)
        control.run("manage.py", "member", "node", node.name, "--wait", "120")
    over = time.monotonic()
    return Figures({"took": f"{over - began:.0f} s"}, (began, over), [("load", began, over)])


def compared(site: Site, watch: Watch, seconds: float) -> Figures:
    """Nothing happens; the same queries are simulated afterwards."""
    began, before = time.monotonic(), site.cluster.run_times()
    time.sleep(simulated.SETTLE_S + seconds)
    over, after = time.monotonic(), site.cluster.run_times()
    none = simulated.RunTimes(0.0, 0.0)
    ran = {
        name: simulated.RunTimes(*(a - b for a, b in zip(times, before.get(name, none), strict=True)))
        for name, times in after.items()
    }

    def look(queries: Sequence[Asked]) -> dict[str, str]:
        meanwhile = [one for one in queries if began <= one.first.sent.at < over]
        return simulated.compare(meanwhile, site.wanted, site.served, ran, PERIOD_S)

    return Figures({}, look=look)


ROWS: dict[str, tuple[Callable[[Site, Watch, float], Figures], float]] = {
    "undisturbed": (undisturbed, 30.0),
    "node-lost": (node_lost, 20.0),
    "core-lost": (core_lost, 20.0),
    "control-lost": (control_lost, 120.0),
    "divided": (divided, 60.0),
    "restarted": (restarted, 2.0),
    "upgraded": (upgraded, 0.0),
    "simulated": (compared, 60.0),
}


# --- steps ------------------------------------------------------------------------------------------------------------


def planned_on(watch: Watch) -> set[str]:
    """The devices that the newest plan gives variants."""
    plan = watch.plans.newest()
    return {device for _, _, device in plan.allowed} if plan is not None else set()


def linked(cluster: Cluster) -> bool:
    """Whether all members are connected with the control plane."""
    members = [*cluster.answers("/gateways/"), *cluster.answers("/nodes/")]
    return len(members) == len(cluster.gateways) + len(cluster.nodes) and all(one["connected"] for one in members)


def _leading(site: Site) -> tuple[Box, Box]:
    """The gateway whose core leads, and another one."""
    gateways = site.cluster.gateways
    cores = {health(gateway)["core"]["name"] for gateway in gateways}
    leading = next(one for one in gateways if any(core.startswith(one.name) for core in cores))
    return leading, next(one for one in gateways if one is not leading)


def _core(gateway: Box) -> str:
    """The core that a gateway's front uses, and how many devices that has."""
    return f"{health(gateway)['core']['name']} with {len(connected(gateway))} devices"


def _cordon(cluster: Cluster, node: Box) -> None:
    path = f"/nodes/{node.name}/"
    with cluster.rest() as rest:
        expect(rest.post(path + "cordon/"), f"cordoning {node.name}", 200, 201, 204)
        wait_for(lambda: rest.get(path).json()["drained"], f"{node.name} is drained", cluster.control)


def _restart_gateway(gateway: Box) -> None:
    gateway.stop()
    gateway.start()
    wait_for(lambda: ready(gateway), f"{gateway.name} is ready", gateway)


def _restart_node(site: Site, node: Box) -> None:
    node.stop()
    node.start()
    gateway = site.cluster.gateways[0]
    wait_for(lambda: any(one.startswith(f"{node.name}/") for one in connected(gateway)), f"{node.name} serves", node)
    node.settle()


def _until(condition: Callable[[], object], since: float, seconds: float = LONGEST_S) -> str:
    while not condition():
        if time.monotonic() > since + seconds:
            return f"not within {seconds:g} s"
        time.sleep(0.1)
    return f"{time.monotonic() - since:.1f} s"
