"""A cluster of boxes that run some roles each and join by the line that the control box prints."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import httpx2
import numpy as np
import onnxruntime

from appliance.demo.manifest import DemoApplication
from appliance.demo.rest import Unreachable, client, pages
from benchmarks import harness
from benchmarks.faults.checker import Query
from benchmarks.faults.clients import Stream, Work
from benchmarks.faults.history import Counted
from benchmarks.faults.observer import Plans
from benchmarks.faults.site import INPUTS, Site, Skipped
from benchmarks.growth import Verdict
from tools.child import ROOT, RunningAppliance
from tools.waiting import eventually
from workers.dispatch.latency import LatencyModel

from .network import Network, allowed
from .router import SUBNET, Place
from .share import Share
from .simulated import Profiles, Served, chosen, run_s

CONSOLE_PORT, HTTP_PORT, NODE_PORT = 8080, 8000, 8090
#: seconds between two plans
PERIOD_S = 10.0
#: how many processes each counts as where the machine is busy: the control plane steps back by itself (nice)
CONTROL_WEIGHT, NETWORK_WEIGHT, GATEWAY_WEIGHT, NODE_WEIGHT = 12, 8, 6, 2
#: CPUs that nodes say they have, and the shares of a core that they get. Together they leave the machine room for all
#: else, so that devices are as quick as profiled.
KINDS = (("Rack CPU 3000", 0.3), ("Desk CPU 500", 0.2), ("Edge CPU 10", 0.12))
NODES = 6
SLO_MS = 500.0
#: seconds that a client waits for a connection, and for an answer
CONNECT_S, PATIENCE_S = 1.0, 5.0
PROFILED_S = 900.0
#: Seconds that two samples of different gateways may be apart and still contradict each other.
TOGETHER_S = 0.1
NEAR = {"delay_ms": 0.5, "jitter_ms": 0.1, "loss": 0.25}
FAR = {"delay_ms": 9.5, "jitter_ms": 1.0, "loss": 0.25}
PLACES = (
    Place("control", 1),
    Place("gw1", 2, **NEAR),
    Place("gw2", 3, **NEAR),
    *(Place(f"n{n}", 10 + n, **(NEAR if n % 2 else FAR)) for n in range(1, NODES + 1)),
    Place("client", 254),
)


class Box(RunningAppliance):
    """A box with a home of its own, at full speed until :meth:`settle`.

    Args:
        cpu: the CPU that it says it has, and the share of a core that it gets; None: as this machine is.
    """

    def __init__(
        self, network: Network, place: Place, folder: Path, role: str, weight: int, cpu=None, **given: str
    ) -> None:
        home = folder / place.name
        super().__init__(home, "--only", role, environment={"NEREUS_NODE_NAME": place.name, **given})
        self.name, self.address = place.name, place.address
        self.console, self.http = f"https://{place.address}:{CONSOLE_PORT}", f"http://{place.address}:{HTTP_PORT}"
        self._share, self._cores = Share(f"nereus-{place.name}", weight), cpu and cpu[1]
        said = folder / f"{place.name}.cpuinfo" if cpu else None
        if said:
            text = Path("/proc/cpuinfo").read_text()
            said.write_text(re.sub(r"(?m)^(model name\s*:).*$", rf"\1 {cpu[0]}", text))
        self._inside = network.inside(place.name)
        self.prefix = [*self._share.inside, *network.inside(place.name, said)]

    def run(self, *command: str) -> str:
        """Run a command of manage.py in the box; its output. Raises OSError."""
        whole = [*self._inside, sys.executable, "manage.py", *command]
        done = subprocess.run(whole, cwd=ROOT, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"{self.name}: {' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def settle(self) -> None:
        self._share.limit(self._cores)

    def again(self) -> None:
        self.stop()
        self._share.limit(None)
        self.output = ""
        self.start(until="")

    def close(self) -> None:
        self._share.limit(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.stop()
        self._share.remove()

    def health(self) -> dict:
        """A gateway's health, as an operator on the network sees it; empty where it does not answer."""
        with contextlib.suppress(httpx2.HTTPError, ValueError):
            return httpx2.get(f"{self.http}/health", timeout=1, trust_env=False).json()
        return {}

    def devices(self) -> set[str]:
        return {name for name, device in self.health().get("devices", {}).items() if device.get("connected")}


class Seen(NamedTuple):
    """The core that a front uses, and the devices that this core has, as the front reports it."""

    at: float
    core: str
    devices: frozenset[str]


class ClusterSite(Site):
    """A control box, gateways and nodes that have joined it, with the demo's applications.

    The process that uses it is in the network of its clients.
    """

    slo_s = SLO_MS / 1000
    gateways = ("gw1", "gw2")
    #: share of what the most accurate variants could serve by their profiles
    load = 0.5

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = Network("nereus", PLACES)
        self.boxes: dict[str, Box] = {}
        self.wanted: Sequence[DemoApplication] = chosen(SLO_MS)
        self.plans = Plans(self.rest)
        self._seen: list[list[Seen]] = [[] for _ in self.gateways]
        self._share: Share | None = None

    @property
    def control(self) -> Box:
        return self.boxes["control"]

    @property
    def gateway_boxes(self) -> list[Box]:
        return [self.boxes[name] for name in self.gateways]

    @property
    def node_boxes(self) -> list[Box]:
        return [box for name, box in self.boxes.items() if name.startswith("n")]

    # --- life ---

    def open(self) -> None:
        if not allowed():
            raise Skipped("namespaces and TUN devices need root and /dev/net/tun")
        self._share = Share("nereus-network", NETWORK_WEIGHT)
        self._share.enter()
        self.network.open()
        self.network.enter("client")
        for place in PLACES[:-1]:
            self._add(place)
        eventually(lambda: len(self.answers("/devices/")) == NODES, why="all nodes joined", of=self.boxes.values())
        for node in self.node_boxes:
            node.settle()
        with self.rest() as rest:
            for one in self.wanted:
                variants = [harness.Variant(variant.name, variant, variant.accuracy) for variant in one.variants]
                harness.upload(rest, one.name, one.slo_ms, variants, one.signature)
            eventually(lambda: self._profiled(rest), PROFILED_S, why="all variants profiled", of=self.boxes.values())
        eventually(self.serves, why="both gateways ready", of=self.boxes.values())
        devices = tuple((device["ref"], device["type"]) for device in self.answers("/devices/"))
        self.served = Served(devices, self._profiles())

    def _add(self, place: Place) -> None:
        metrics = {"NEREUS_METRICS_FROM": f"127.0.0.1,{SUBNET}.0/24"}
        if place.name == "control":
            given = {"NEREUS_CONSOLE": f"{place.address}:{CONSOLE_PORT}", "NEREUS_PLAN_PERIOD_S": f"{PERIOD_S:g}"}
            box = Box(self.network, place, self.folder, "control", CONTROL_WEIGHT, **given)
        elif place.name in self.gateways:
            # Clients speak plain HTTP with it, members TLS.
            given = {"NEREUS_HTTP": f"{place.address}:{HTTP_PORT}", "NEREUS_GRPC": f"{place.address}:{HTTP_PORT + 1}"}
            given |= {"NEREUS_TLS": "off", **metrics}
            box = Box(self.network, place, self.folder, "gateway", GATEWAY_WEIGHT, **given)
        else:
            number = len(self.node_boxes)
            given = {"NEREUS_NODE_HTTP": f"{place.address}:{NODE_PORT}", **metrics}
            given["NEREUS_CPU_DEVICES"] = str(number % (os.cpu_count() or 1))
            box = Box(self.network, place, self.folder, "node", NODE_WEIGHT, KINDS[number % len(KINDS)], **given)
        self.boxes[place.name] = box
        if place.name == "control":
            box.start(until="Ready after")
            return
        for word in shlex.split(self.control.run("join", box.arguments[-1]).strip().splitlines()[-1]):
            name, equals, value = word.partition("=")
            if equals and name.startswith("NEREUS_"):
                box.environment[name] = value
        box.start(until="")

    def _profiled(self, rest: httpx2.Client) -> bool:
        running = any(job["state"] in ("queued", "running") for job in pages(rest, "/profile-jobs/"))
        return not running and all(harness.ready(rest, one.name) for one in self.wanted)

    def _profiles(self) -> dict[str, Profiles]:
        found: dict[str, dict[tuple[str, str], LatencyModel]] = {}
        for one in self.wanted:
            for profile in self.answers(f"/profiles/?application={one.name}"):
                points = [(point["batch"], point["p50_ms"] / 1000) for point in profile["latencies"]]
                found.setdefault(profile["device_type"], {})[one.name, profile["variant"]] = LatencyModel(points)
        return found

    def close(self) -> None:
        for box in reversed(self.boxes.values()):
            box.close()
        self.network.close()
        if self._share is not None:
            self._share.remove()

    # --- what it does ---

    def rest(self) -> AbstractContextManager[httpx2.Client]:
        return client(self.control.console, self.control.credentials["api_token"], self.control.trust())

    def answers(self, path: str) -> list[dict]:
        """All results of a list of the REST API; empty: it does not answer now."""
        with contextlib.suppress(Unreachable), self.rest() as rest:
            return pages(rest, path)
        return []

    def log(self) -> str:
        return "".join(f"--- {box.name}\n{box.read()[-3000:]}\n{box.log()[-100_000:]}" for box in self.boxes.values())

    def serves(self) -> bool:
        return all(box.health().get("status") == "ready" for box in self.gateway_boxes)

    def linked(self) -> bool:
        members = [*self.answers("/gateways/"), *self.answers("/nodes/")]
        return len(members) == len(self.boxes) - 1 and all(one["connected"] for one in members)

    def planned(self) -> set[str]:
        self.plans.new()
        return {device for _, _, device in self.plans.newest().allowed}

    def leading(self) -> tuple[Box, Box]:
        """The gateway whose core leads, and the other one."""
        first, second = self.gateway_boxes
        return (first, second) if first.health()["core"]["name"].startswith(first.name) else (second, first)

    def run_s(self) -> float:
        urls = [f"http://{node.address}:{NODE_PORT}/metrics" for node in self.node_boxes]
        return run_s(httpx2.get(url, timeout=20, trust_env=False).raise_for_status().text for url in urls)

    def work(self, file: Path, seed: int) -> Work:
        self._seen = [[] for _ in self.gateways]
        rates = self.served.rates(self.wanted, self.load)
        return Work(
            file=str(file),
            hosts=[box.address for box in self.gateway_boxes],
            http=HTTP_PORT,
            key=self.control.credentials["api_key"],
            streams=[stream(one, rates[one.name]) for one in self.wanted],
            patience_s=PATIENCE_S,
            connect_s=CONNECT_S,
            seed=seed,
        )

    def versions(self) -> dict[str, int]:
        found = {}
        for box, seen in zip(self.gateway_boxes, self._seen, strict=True):
            if said := box.health():
                devices = {name for name, device in said.get("devices", {}).items() if device.get("connected")}
                seen.append(Seen(time.monotonic(), said["core"]["name"], frozenset(devices)))
                found[box.name] = said["plan"]["adopted"] or 0
        return found

    def counters(self) -> list[Counted]:
        return []

    def one_core_each(self, _queries: Sequence[Query]) -> Verdict:
        """No device may be of two cores at once."""
        booked = contradictions(*self._seen)
        return not booked, f"devices of two cores at once: {', '.join(sorted(booked)) or 'none'}"


def contradictions(one: Sequence[Seen], other: Sequence[Seen]) -> set[str]:
    """Devices that two cores had at once in two consecutive pairs of samples, :data:`TOGETHER_S` apart at most."""
    together = [a.devices & b.devices for a in one for b in other if abs(a.at - b.at) < TOGETHER_S and a.core != b.core]
    return {device for first, second in itertools.pairwise(together) for device in first & second}


def stream(application: DemoApplication, rate: float) -> Stream:
    spec = application.signature["inputs"][0]
    rows = [np.asarray(row, np.float32)[np.newaxis] for row in application.samples()[spec["name"]][:INPUTS]]
    outputs = {}
    for variant in application.variants:
        session = onnxruntime.InferenceSession(str(variant.path), providers=["CPUExecutionProvider"])
        outputs[variant.name] = [session.run(None, {spec["name"]: row})[0].tobytes() for row in rows]
    inputs = {"columns": list(rows[0].shape[1:]), "rows": [row.tobytes() for row in rows], "input": spec["name"]}
    return Stream(application.name, "http", rate, outputs=outputs, **inputs)
