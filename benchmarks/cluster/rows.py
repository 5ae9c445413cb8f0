"""Faults of the cluster under load, and the figures that are taken of them."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from .boxes import Box, Cluster, wait_for
from .load import Answer, Work
from .network import ROOT, Network


class Load:
    """The load, from a box of its own, until it is closed."""

    def __init__(self, network: Network, place: str, work: Work) -> None:
        self.answers: list[Answer] = []
        command = network.command(place, [sys.executable, "-m", "benchmarks.cluster.load"])
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._process.stdin.write(msgspec.json.encode(work) + b"\n")
        self._process.stdin.flush()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            self.answers.append(msgspec.json.decode(line, type=Answer))

    def close(self) -> None:
        """Stop sending, and wait for the last answers."""
        self._process.stdin.close()
        self._process.wait(120)
        self._thread.join(10)

    def between(self, start: float, end: float) -> list[Answer]:
        """Queries that were sent in this time (seconds, monotonic)."""
        return [answer for answer in self.answers if start <= answer.sent < end]


@dataclass
class Site:
    """A cluster under load."""

    network: Network
    cluster: Cluster
    load: Load
    work: Work
    client: str

    def health(self, gateway: Box) -> dict:
        """The gateway's health, as an operator on the network sees it; empty: no answer."""
        ask = ["curl", "-s", "-m", "2", f"http://{gateway.address}:8000/health"]
        done = subprocess.run(self.network.command(self.client, ask), capture_output=True)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {}

    def ready(self, gateway: Box) -> bool:
        """Whether the gateway can serve every application."""
        return self.health(gateway).get("status") == "ready"

    def connected(self, gateway: Box) -> set[str]:
        """The devices that the core of the gateway's queries has."""
        return {name for name, device in self.health(gateway).get("devices", {}).items() if device.get("connected")}

    def routed(self, gateway: Box) -> set[str]:
        """The devices that its plan routes queries to."""
        found = self.health(gateway).get("applications", {}).values()
        return {device for application in found for device in application.get("routes", {})}


class Figures(dict[str, str]):
    """By name, in the order of the table."""

    def count(self, name: str, answers: list[Answer]) -> None:
        """How queries ended, at the first gateway and after the second one was asked too."""
        failed = [answer for answer in answers if answer.first != 200]
        lost = sum(answer.last != 200 for answer in answers)
        slowest = max((answer.ended - answer.sent for answer in answers), default=0.0)
        self[name] = f"{len(answers)} queries, {len(failed)} not at once, {lost} not at all, slowest {slowest:.2f} s"


def refused_s(answers: list[Answer], gateway: int) -> float:
    """From the first to the last query that a gateway did not answer with a result, in seconds."""
    failed = [answer.sent for answer in answers if answer.gateway == gateway and answer.first != 200]
    return max(failed) - min(failed) if failed else 0.0


def undisturbed(site: Site, seconds: float) -> Figures:
    """Nothing happens."""
    found, began = Figures(), time.monotonic()
    time.sleep(seconds)
    answers = site.load.between(began, time.monotonic() - 1)
    found.count("load", answers)
    times = [answer.ended - answer.sent for answer in answers]
    found["latency"] = f"median {statistics.median(times) * 1e3:.0f} ms" if times else "none"
    return found


def node_lost(site: Site, seconds: float) -> Figures:
    """A node's box loses its network, without a word."""
    found, node, gateway = Figures(), site.cluster.nodes[0], site.cluster.gateways[0]
    own = {device for device in site.connected(gateway) if device.startswith(f"{node.name}/")}
    began = time.monotonic()
    site.network.cut(node.name)
    found["core gave it up after"] = (
        f"{wait_for(lambda: not own & site.connected(gateway), 'the core gives it up'):.1f} s"
    )
    found["plan without it after"] = f"{_until(lambda: not own & site.routed(gateway), began)}"
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    back = time.monotonic()
    site.network.mend()
    found["back in the plan after"] = f"{_until(lambda: own <= site.routed(gateway), back)}"
    found.count("load", site.load.between(began, time.monotonic()))
    return found


def _until(condition: Callable[[], object], since: float, seconds: float = 120.0) -> str:
    while not condition():
        if time.monotonic() > since + seconds:
            return f"not within {seconds:g} s"
        time.sleep(0.1)
    return f"{time.monotonic() - since:.1f} s"


def core_lost(site: Site, seconds: float) -> Figures:
    """The box of the core that leads loses its network, without a word."""
    found, began = Figures(), time.monotonic()
    leading, other = site.cluster.gateways[:2]
    site.network.cut(leading.name)
    time.sleep(seconds)
    answers = site.load.between(began, time.monotonic() - 2)
    place = site.work.urls.index(f"http://{other.address}:8000")
    found["refused at the other gateway for"] = f"{refused_s(answers, place):.1f} s"
    mine = [answer for answer in answers if answer.gateway == place]
    found.count("at the other gateway", mine)
    back = time.monotonic()
    site.network.mend()
    found["its front serves again after"] = _until(lambda: site.ready(leading), back)
    time.sleep(3)
    found.count("after its return", site.load.between(back + 3, time.monotonic() - 1))
    return found


def control_lost(site: Site, seconds: float) -> Figures:
    """The control box loses its network."""
    found, began = Figures(), time.monotonic()
    site.network.cut(site.cluster.control.name)
    time.sleep(seconds)
    found.count("load", site.load.between(began, time.monotonic() - 1))
    back = time.monotonic()
    site.network.mend()

    def linked() -> bool:
        members = [*site.cluster.rest("/gateways/")["results"], *site.cluster.rest("/nodes/")["results"]]
        return all(member["connected"] for member in members)

    found["all members linked after"] = _until(linked, back)
    return found


def divided(site: Site, seconds: float) -> Figures:
    """The core that leads and half of the nodes no longer reach each other; the other core reaches all."""
    found, began = Figures(), time.monotonic()
    leading, other = site.cluster.gateways[:2]
    far = [node.name for node in site.cluster.nodes[: len(site.cluster.nodes) // 2]]
    site.network.divide([leading.name], far)
    time.sleep(seconds)
    first, second = site.connected(leading), site.connected(other)
    found["devices of the two fronts' cores"] = f"{len(first)} and {len(second)}"
    found.count("load", site.load.between(began, time.monotonic() - 1))
    back = time.monotonic()
    site.network.mend()
    everywhere = {f"{node.name}/" for node in site.cluster.nodes}

    def healed() -> bool:
        return {device.partition("/")[0] + "/" for device in site.connected(leading)} == everywhere

    found["one core has all devices again after"] = _until(healed, back)
    found.count("meanwhile", site.load.between(back, time.monotonic()))
    return found


def restarted(site: Site, seconds: float) -> Figures:
    """Every box is restarted, one after the other, as an upgrade does: gateways first, then nodes."""
    found, began = Figures(), time.monotonic()
    for box in (*site.cluster.gateways, *site.cluster.nodes):
        box.stop()
        box.start()
        if box in site.cluster.gateways:
            wait_for(lambda box=box: site.ready(box), f"{box.name} is ready", box)
        else:
            gateway = site.cluster.gateways[0]
            wait_for(
                lambda box=box, gateway=gateway: any(one.startswith(f"{box.name}/") for one in site.connected(gateway)),
                f"{box.name} serves",
                box,
            )
        time.sleep(seconds / 10)
    found["took"] = f"{time.monotonic() - began:.0f} s"
    found.count("load", site.load.between(began, time.monotonic() - 1))
    return found


ROWS: dict[str, Callable[[Site, float], Figures]] = {
    "undisturbed": undisturbed,
    "node-lost": node_lost,
    "core-lost": core_lost,
    "control-lost": control_lost,
    "divided": divided,
    "restarted": restarted,
}
