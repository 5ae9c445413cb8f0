"""A real appliance, started as an operator starts it (``manage.py up``), for tests that look at the whole."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

#: below those that systems give to outgoing connections, and in another order for each process that tests
_PORTS = itertools.cycle(random.SystemRandom().sample(range(10_000, 32_000), 22_000))
ROOT = Path(__file__).resolve().parent.parent


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now and that this process was not given before."""
    found: list[int] = []
    while len(found) < count:
        port = next(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


def eventually(what: Callable[[], Any], timeout: float = 120, every: float = 0.2, why: str = "") -> Any:
    """The first true answer of ``what``; an AssertionError with the last answer after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        answer = what()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{why or what} did not come true in {timeout} s; last answer: {answer!r}"
        time.sleep(every)


class RunningAppliance:
    """``manage.py up`` in a home folder of its own."""

    def __init__(self, home: Path, *arguments: str, environment: dict[str, str] | None = None):
        self.home = home
        self.arguments = arguments
        console, http, grpc, node = free_ports(4)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("NEREUS_")},
            "NEREUS_HOME": str(home),
            "NEREUS_CONSOLE": f"127.0.0.1:{console}",
            "NEREUS_HTTP": f"127.0.0.1:{http}",
            "NEREUS_GRPC": f"127.0.0.1:{grpc}",
            "NEREUS_NODE_HTTP": f"127.0.0.1:{node}",
            "NEREUS_NODE_NAME": "box",
            **(environment or {}),
        }
        self.console = f"http://127.0.0.1:{console}"
        self.http = f"http://127.0.0.1:{http}"
        self.node_http = f"http://127.0.0.1:{node}"
        self.ports = (console, http, node)
        self.process: subprocess.Popen | None = None
        self.output = ""

    def start(self, timeout: float = 240) -> RunningAppliance:
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", *self.arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        eventually(self._printed_ready, timeout, why="the appliance's start")
        return self

    def _printed_ready(self) -> bool:
        self.read()
        assert self.process.poll() is None, f"the appliance ended: {self.output}\n{self.log()[-4000:]}"
        return "Ctrl-C stops everything" in self.output

    def read(self) -> str:
        """All that the appliance printed so far."""
        try:
            self.output += self.process.stdout.read() or ""
        except (TypeError, BlockingIOError):
            pass
        return self.output

    def log(self) -> str:
        path = self.home / "logs" / "nereus.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def events(self, event: str) -> list[dict]:
        """Structured log lines of one event."""
        lines = []
        for line in self.log().splitlines():
            if line.startswith("{"):
                try:
                    parsed = json.loads(line)
                except ValueError:
                    continue
                if parsed.get("event") == event:
                    lines.append(parsed)
        return lines

    def pid(self, service: str) -> int:
        """The process id of a service's latest start."""
        starts = [
            line
            for event in ("service_started", "service_restarted")
            for line in self.events(event)
            if line["service"] == service
        ]
        return max(starts, key=lambda line: line["timestamp"])["pid"]

    @property
    def credentials(self) -> dict[str, str]:
        return json.loads((self.home / "credentials.json").read_text())

    def rest(self) -> httpx.Client:
        """A client for the REST API."""
        return httpx.Client(
            base_url=self.console + "/api/v1",
            headers={"Authorization": f"Bearer {self.credentials['api_token']}"},
            timeout=60,
        )

    def inference(self) -> httpx.Client:
        """A client for V2 HTTP."""
        return httpx.Client(
            base_url=self.http, headers={"Authorization": f"Bearer {self.credentials['api_key']}"}, timeout=60
        )

    def stop(self, number: int = signal.SIGINT, timeout: float = 120) -> None:
        """Signal the supervisor and wait until it has ended."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(timeout)
        self.read()

    def group_members(self) -> list[int]:
        """Processes that carry this appliance's home in their environment, the supervisor included."""
        found = []
        needle = f"NEREUS_HOME={self.home}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if needle in environment and state != "Z":
                found.append(int(entry.name))
        return found

    def ports_open(self) -> list[int]:
        still = []
        for port in self.ports:
            with socket.socket() as probe:
                probe.settimeout(0.5)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    still.append(port)
        return still


SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
}


def register(client: httpx.Client, name: str, models: dict[str, Path], slo_ms: float = 400, **fields: Any) -> None:
    """An application with one variant a model, accuracies declared by rank: 90, 95, 99 ..., profiled and ready."""
    answer = client.post("/applications/", json={"name": name, "slo_ms": slo_ms, "signature": SIGNATURE, **fields})
    assert answer.status_code == 201, answer.text
    for rank, (variant, path) in enumerate(models.items()):
        accuracy = 100 - 9 / (rank + 1) ** 1.5
        with path.open("rb") as file:
            answer = client.post(
                f"/applications/{name}/variants/",
                data={"name": variant, "accuracy": f"{accuracy:.2f}"},
                files={"file": (path.name, file)},
            )
        assert answer.status_code == 201, answer.text
    wait_ready(client, name)


def wait_ready(client: httpx.Client, name: str, timeout: float = 240) -> list[dict]:
    """The application's variants once all of them are ready."""

    def ready():
        variants = client.get(f"/applications/{name}/variants/").json()["results"]
        assert not [v for v in variants if v["state"] == "failed"], variants
        return variants if variants and all(v["state"] == "ready" for v in variants) else None

    return eventually(ready, timeout, why=f"{name}'s variants ready")


def v2_request(rows: int = 1, value: float = 0.5) -> dict:
    """A V2 JSON query for :data:`SIGNATURE`."""
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": [value] * (4 * rows)}]}
