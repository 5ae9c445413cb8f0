"""Boxes of the cluster: each runs some roles as an operator starts them, by the line that the control box prints."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .network import ROOT, Network, Place
from .router import SUBNET

#: seconds that a box may take to do what is waited for
PATIENCE_S = 300.0
CONSOLE_PORT, HTTP_PORT = 8080, 8000


class Box:
    """A box with a home of its own.

    Args:
        given: settings, beside those of the line that it joins by.
        cpu_model: what its /proc/cpuinfo says; empty: what it says here.
    """

    def __init__(self, network: Network, place: Place, home: Path, cpu_model: str = "", **given: str) -> None:
        self.name, self.address, self.home = place.name, place.address, home
        self._network = network
        home.mkdir(parents=True)
        self._cpu_model = home / "cpuinfo" if cpu_model else None
        if cpu_model:
            said = Path("/proc/cpuinfo").read_text()
            self._cpu_model.write_text(re.sub(r"(?m)^(model name\s*:).*$", rf"\1 {cpu_model}", said))
        environ = {key: value for key, value in os.environ.items() if not key.startswith("NEREUS_")}
        self.environ = environ | {"NEREUS_HOME": str(home / "nereus"), "NEREUS_NODE_NAME": place.name, **given}
        self._process: subprocess.Popen | None = None
        self._roles: Sequence[str] = ()

    def join(self, line: str) -> None:
        """Take the settings of the line that ``join-command`` printed."""
        for word in shlex.split(line):
            key, equals, value = word.partition("=")
            if equals and key.startswith("NEREUS_"):
                self.environ[key] = value

    def start(self, *roles: str) -> None:
        """Start these roles, or again those from before."""
        self._roles = roles or self._roles
        command = [sys.executable, "manage.py", "up", "--only", ",".join(self._roles)]
        with (self.home / "out.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._network.command(self.name, command, self._cpu_model),
                cwd=ROOT,
                env=self.environ,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        """Stop in order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
            self._process = None

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
        """What its processes have logged."""
        found = sorted((self.home / "nereus" / "logs").glob("*.log"))
        return "".join(path.read_text(errors="replace") for path in found)

    @property
    def credentials(self) -> dict[str, str]:
        """Of the control box."""
        return json.loads((self.home / "nereus" / "credentials.json").read_text())


class Cluster:
    """A control box, gateways and nodes that have joined it, with the demo's applications.

    Args:
        gateways, nodes: places by what their CPU is called.
    """

    def __init__(self, network: Network, folder: Path, control: Place, say: Callable[[str], None] = print) -> None:
        self._network, self._folder, self._say = network, folder, say
        address = f"{control.address}:{CONSOLE_PORT}"
        self.control = Box(network, control, folder / control.name, NEREUS_CONSOLE=address)
        self.gateways: list[Box] = []
        self.nodes: list[Box] = []

    @property
    def boxes(self) -> list[Box]:
        return [self.control, *self.gateways, *self.nodes]

    def start_control(self) -> None:
        """Start the control box, and wait until it can be joined."""
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
            NEREUS_HTTP=f"{place.address}:{HTTP_PORT}",
            NEREUS_GRPC=f"{place.address}:{HTTP_PORT + 1}",
            NEREUS_TLS="off",
            NEREUS_METRICS_FROM=f"127.0.0.1,{SUBNET}.0/24",
        )
        self.gateways.append(box)
        return self._join(box, "gateway")

    def add_node(self, place: Place, cores: str, cpu_model: str = "") -> Box:
        """A node box, joined."""
        box = Box(self._network, place, self._folder / place.name, cpu_model, NEREUS_CPU_DEVICES=cores)
        self.nodes.append(box)
        return self._join(box, "node")

    def _join(self, box: Box, role: str) -> Box:
        box.join(self.control.run("manage.py", "join-command", "--role", role).strip().splitlines()[-1])
        box.start(role)
        return box

    def register_demo(self) -> None:
        """Upload the demo's applications, and wait until they are profiled on each type of device."""
        self.control.run("-m", "appliance.demo.register")

    def rest(self, path: str) -> dict | list:
        """What the control box answers to GET ``/api/v1`` and ``path``."""
        return json.loads(self.control.run("-m", "benchmarks.cluster.ask", self.url + "/api/v1" + path))

    @property
    def url(self) -> str:
        return f"https://{self.control.address}:{CONSOLE_PORT}"

    def stop(self) -> None:
        """Stop all boxes, control last."""
        for box in reversed(self.boxes):
            try:
                box.stop()
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
