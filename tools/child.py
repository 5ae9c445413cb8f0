"""An appliance as a child process, started by ``manage.py up`` as an operator starts it.

For tests and benchmarks, which do not import each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import httpx2
import psutil

from tools.waiting import eventually

#: Ports below the ephemeral range, in another order for each process that asks.
_PORTS = itertools.cycle(random.SystemRandom().sample(range(10_000, 32_000), 22_000))
#: printed once everything serves, and once the data plane does
READY, SERVING = "Ctrl-C stops everything", "Serving after"
#: a service that ends so often while its start is waited for does not come up any more
HOPELESS = 5
ROOT = Path(__file__).resolve().parents[1]


def free_ports(count: int) -> list[int]:
    """Ports that are free now and that no living process was given.

    A byte of a file is locked for each, which ends with this process.
    """
    found: list[int] = []
    while len(found) < count:
        port = next(_PORTS)
        try:
            # Claimed last: without a descriptor for the probe, each port would be claimed in vain.
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            continue
        found.append(port)
    return found


@functools.cache
def _claims() -> int:
    """The file of claimed ports, open until this process ends: closing it would end the claims."""
    return os.open(Path(tempfile.gettempdir()) / f"nereus-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)


def bare_environment() -> dict[str, str]:
    """This process's environment without settings of an appliance."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NEREUS_")}


class RunningAppliance:
    """``manage.py up`` of the checkout ``root`` in a home folder of its own."""

    def __init__(self, home: Path, *arguments: str, environment: dict[str, str] | None = None, root: Path = ROOT):
        self.home = home
        self._root = root
        self.arguments = arguments
        #: begins the command: where it runs
        self.prefix: list[str] = []
        console, http, grpc, node = free_ports(4)
        self.environment = {
            **bare_environment(),
            "NEREUS_HOME": str(home),
            "NEREUS_CONSOLE": f"127.0.0.1:{console}",
            "NEREUS_HTTP": f"127.0.0.1:{http}",
            "NEREUS_GRPC": f"127.0.0.1:{grpc}",
            "NEREUS_NODE_HTTP": f"127.0.0.1:{node}",
            "NEREUS_NODE_NAME": "box",
            **(environment or {}),
        }
        encrypted = self.environment.get("NEREUS_TLS") == "on"
        self.console = f"http{'s' * encrypted}://127.0.0.1:{console}"
        self.http = f"http{'s' * encrypted}://127.0.0.1:{http}"
        self.grpc = f"127.0.0.1:{grpc}"
        self.node_http = f"http://127.0.0.1:{node}"
        self.ports = (console, http, node)
        self.process: subprocess.Popen | None = None
        self.output = ""
        self._failed_before: Counter = Counter()

    def start(self, timeout: float = 500, until: str = READY) -> RunningAppliance:
        """Start it, and wait until it has printed ``until``."""
        self.process = subprocess.Popen(
            [*self.prefix, sys.executable, "manage.py", "up", *self.arguments],
            cwd=self._root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.wait_for(until, timeout)
        return self

    def wait_for(self, text: str, timeout: float = 500) -> None:
        """Wait until it has printed ``text``."""
        self._failed_before = self._failed()
        eventually(lambda: text in self.read(), timeout, why=f"{text!r} printed", of=[self])

    def _failed(self) -> Counter:
        return Counter(line["service"] for line in self.events("service_failed"))

    def poll(self) -> int | str | None:
        """Its exit status, or a sentence if a service has ended again and again since it was last waited for."""
        often = [name for name, times in (self._failed() - self._failed_before).items() if times >= HOPELESS]
        return f"{', '.join(often)}, again and again" if often else self.process.poll()

    def last_lines(self) -> str:
        return f"{self.read()}\n{self.log()[-4000:]}"

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
            if line.startswith("{") and event in line:
                try:
                    parsed = json.loads(line)
                except ValueError:
                    continue
                if parsed.get("event") == event:
                    lines.append(parsed)
        return lines

    def pid(self, service: str) -> int:
        """The process id of a service's latest start."""
        starts = [*self.events("service_started"), *self.events("service_restarted")]
        return max((line["timestamp"], line["pid"]) for line in starts if line["service"] == service)[1]

    @property
    def credentials(self) -> dict[str, str]:
        return json.loads((self.home / "credentials.json").read_text())

    @property
    def authorities(self) -> str:
        """PEM file of whom clients trust; empty without TLS."""
        return str(self.home / "tls" / "authority.pem") if self.console.startswith("https") else ""

    def trust(self) -> ssl.SSLContext | None:
        """The certificates that clients trust, once it runs."""
        return ssl.create_default_context(cafile=self.authorities) if self.authorities else None

    def rest(self) -> httpx2.Client:
        return self._client(f"{self.console}/api/v1", "api_token")

    def inference(self) -> httpx2.Client:
        """A client for V2 HTTP."""
        return self._client(self.http, "api_key")

    def _client(self, url: str, secret: str) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.credentials[secret]}"}
        return httpx2.Client(base_url=url, headers=headers, timeout=60, verify=self.trust() or False)

    def stop(self, number: int = signal.SIGINT, timeout: float = 120) -> None:
        """Signal the supervisor and wait until it has ended."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(timeout)
        self.read()

    def group_members(self) -> list[int]:
        """Processes that have this appliance's home in their environment, the supervisor included."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("NEREUS_HOME") == str(self.home):
                    found.append(process.pid)
        return found

    def ports_open(self) -> list[int]:
        def listens(port: int) -> bool:
            with socket.socket() as probe:
                probe.settimeout(0.5)
                return probe.connect_ex(("127.0.0.1", port)) == 0

        return list(filter(listens, self.ports))
