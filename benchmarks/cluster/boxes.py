"""Boxes of the cluster, each of which runs some roles as an operator starts them.

They join by the line that the control box prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2

from appliance.demo.manifest import DemoApplication
from appliance.demo.rest import Unreachable, client, pages
from benchmarks import harness
from workers.dispatch.latency import LatencyModel

from .network import ROOT, Network, Place
from .router import SUBNET
from .shares import Share
from .simulated import Profiles, RunTimes, run_times

#: seconds that a box may take to do what is waited for
PATIENCE_S, PROFILED_S = 300.0, 900.0
CONSOLE_PORT, HTTP_PORT, NODE_PORT = 8080, 8000, 8090
#: seconds between two plans
PERIOD_S = 10.0
#: how many processes each counts as where the machine is busy: the control plane steps back by itself (nice)
CONTROL_WEIGHT, GATEWAY_WEIGHT, NODE_WEIGHT = 12, 6, 2


@dataclass(frozen=True)
class Kind:
    """A kind of node.

    Attributes:
        cpu_model: the CPU that it says it has.
        cores: the share of a core that it gets.
    """

    cpu_model: str
    cores: float


class Box:
    """A box with a home of its own.

    Args:
        given: settings, beside those of the line that it joins by.
        weight: see :class:`.Share`.
        kind: None: it is as this machine is.
    """

    def __init__(
        self, network: Network, place: Place, home: Path, weight: int, kind: Kind | None = None, **given: str
    ) -> None:
        self.name, self.address, self.home = place.name, place.address, home
        self._network = network
        home.mkdir(parents=True)
        self._cpu_model = home / "cpuinfo" if kind else None
        self._share = Share(f"nereus-{place.name}", weight, kind.cores if kind else None)
        if kind:
            said = Path("/proc/cpuinfo").read_text()
            self._cpu_model.write_text(re.sub(r"(?m)^(model name\s*:).*$", rf"\1 {kind.cpu_model}", said))
        environ = {key: value for key, value in os.environ.items() if not key.startswith("NEREUS_")}
        self.environ = environ | {"NEREUS_HOME": str(home / "nereus"), "NEREUS_NODE_NAME": place.name, **given}
        self._process: subprocess.Popen | None = None
        self._roles: Sequence[str] = ()

    def join(self, line: str) -> None:
        """Take the settings of the line that ``nereus join`` printed."""
        for word in shlex.split(line):
            key, equals, value = word.partition("=")
            if equals and key.startswith("NEREUS_"):
                self.environ[key] = value

    def start(self, *roles: str) -> None:
        """Start these roles, or again those from before.

        The box runs at full speed until :meth:`settle`.
        """
        self._roles = roles or self._roles
        command = [sys.executable, "manage.py", "up", "--only", ",".join(self._roles)]
        command = self._network.command(self.name, command, self._cpu_model)
        self._share.lift()
        with (self.home / "out.log").open("ab") as log:
            whole = self._share.command(command)
            self._process = subprocess.Popen(whole, cwd=ROOT, env=self.environ, stdout=log, stderr=log)

    def settle(self) -> None:
        self._share.limit()

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
            self._process = None

    def close(self) -> None:
        self._share.lift()
        try:
            self.stop()
        finally:
            self._share.remove()

    def run(self, *command: str) -> str:
        """Run a command in the box; its output.

        Raises:
            OSError: it failed.
        """
        whole = self._network.command(self.name, [sys.executable, *command])
        done = subprocess.run(whole, cwd=ROOT, env=self.environ, capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"{self.name}: {' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def log(self) -> str:
        found = sorted((self.home / "nereus" / "logs").glob("*.log"))
        return "".join(path.read_text(errors="replace") for path in found)

    @property
    def credentials(self) -> dict[str, str]:
        return json.loads((self.home / "nereus" / "credentials.json").read_text())


class Cluster:
    """A control box, gateways and nodes that have joined it, with applications.

    The process that uses it must be in the network of one of its boxes.
    """

    def __init__(self, network: Network, folder: Path, control: Place, say: Callable[[str], None] = print) -> None:
        self._network, self._folder, self._say = network, folder, say
        address = f"{control.address}:{CONSOLE_PORT}"
        settings = {"NEREUS_CONSOLE": address, "NEREUS_PLAN_PERIOD_S": f"{PERIOD_S:g}"}
        self.control = Box(network, control, folder / control.name, CONTROL_WEIGHT, **settings)
        self.gateways: list[Box] = []
        self.nodes: list[Box] = []

    @property
    def boxes(self) -> list[Box]:
        return [self.control, *self.gateways, *self.nodes]

    def start_control(self) -> None:
        self.control.start("control")
        wait_for(
            lambda: "Ready after" in _text(self.control.home / "out.log"), "the control box is ready", self.control
        )

    def add_gateway(self, place: Place) -> Box:
        """A gateway box, joined; clients speak plain HTTP with it, members TLS."""
        box = Box(
            self._network,
            place,
            self._folder / place.name,
            GATEWAY_WEIGHT,
            NEREUS_HTTP=f"{place.address}:{HTTP_PORT}",
            NEREUS_GRPC=f"{place.address}:{HTTP_PORT + 1}",
            NEREUS_TLS="off",
            NEREUS_METRICS_FROM=f"127.0.0.1,{SUBNET}.0/24",
        )
        self.gateways.append(box)
        return self._join(box, "gateway")

    def add_node(self, place: Place, core: int, kind: Kind) -> Box:
        box = Box(
            self._network,
            place,
            self._folder / place.name,
            NODE_WEIGHT,
            kind,
            NEREUS_CPU_DEVICES=str(core),
            NEREUS_NODE_HTTP=f"{place.address}:{NODE_PORT}",
            NEREUS_METRICS_FROM=f"127.0.0.1,{SUBNET}.0/24",
        )
        self.nodes.append(box)
        return self._join(box, "node")

    def _join(self, box: Box, role: str) -> Box:
        box.join(self.control.run("manage.py", "join", role).strip().splitlines()[-1])
        box.start(role)
        return box

    def register(self, wanted: Sequence[DemoApplication]) -> None:
        """Upload applications, and wait until they are profiled on each type of device."""
        with self.rest() as rest:
            for one in wanted:
                variants = [harness.Variant(variant.name, variant, variant.accuracy) for variant in one.variants]
                harness.upload(rest, one.name, one.slo_ms, variants, one.signature)

            def profiled() -> bool:
                jobs = pages(rest, "/profile-jobs/")
                running = any(job["state"] in ("queued", "running") for job in jobs)
                return not running and all(harness.ready(rest, one.name) for one in wanted)

            wait_for(profiled, "all variants are profiled", self.control, seconds=PROFILED_S)

    def profiles(self, wanted: Sequence[DemoApplication]) -> dict[str, Profiles]:
        found: dict[str, dict[tuple[str, str], LatencyModel]] = {}
        with self.rest() as rest:
            for one in wanted:
                for profile in pages(rest, f"/profiles/?application={one.name}"):
                    points = [(point["batch"], point["p50_ms"] / 1000) for point in profile["latencies"]]
                    found.setdefault(profile["device_type"], {})[one.name, profile["variant"]] = LatencyModel(points)
        return found

    def run_times(self) -> dict[str, RunTimes]:
        urls = [f"http://{node.address}:{NODE_PORT}/metrics" for node in self.nodes]
        return run_times(httpx2.get(url, timeout=20, trust_env=False).raise_for_status().text for url in urls)

    @contextlib.contextmanager
    def rest(self) -> Iterator[httpx2.Client]:
        trust = ssl.create_default_context(cafile=str(self.control.home / "nereus" / "tls" / "authority.pem"))
        with client(self.url, self.control.credentials["api_token"], trust) as rest:
            yield rest

    def answers(self, path: str) -> list[dict]:
        """All results of a list of the REST API; empty: it does not answer now."""
        try:
            with self.rest() as rest:
                return pages(rest, path)
        except Unreachable:
            return []

    @property
    def url(self) -> str:
        return f"https://{self.control.address}:{CONSOLE_PORT}"

    def stop(self) -> None:
        for box in reversed(self.boxes):
            try:
                box.close()
            except subprocess.TimeoutExpired:
                self._say(f"{box.name} does not stop")


def wait_for(condition: Callable[[], object], what: str, *boxes: Box, seconds: float = PATIENCE_S) -> float:
    """Wait until a condition holds; the seconds that it took.

    Raises:
        TimeoutError: it does not; with the end of these boxes' logs.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() > began + seconds:
            logs = "\n".join(
                f"--- {box.name}\n{_text(box.home / 'out.log')[-3000:]}\n{box.log()[-6000:]}" for box in boxes
            )
            raise TimeoutError(f"not within {seconds:g} s: {what}\n{logs}")
        time.sleep(0.1)
    return time.monotonic() - began


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
