"""Servers that one model is measured on: Nereus over V2 HTTP and V2 gRPC, a bare echo, and mosec."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from .generator import Load
from .load import post, requests, v2_grpc_requests, v2_requests
from .models import OUTPUTS, Model
from .stack import KEY, Stack, StackError, free_ports, process_cpu_s

START_S = 60.0


class Server(Protocol):
    """Something that answers queries of one model. ``name`` as in the table."""

    name: str

    def load(self, **given: Any) -> Load:
        """A load for it; the arguments are those of :class:`Load` beside port and requests."""

    def cpu_s(self) -> dict[str, float]:
        """Seconds of CPU time by process so far."""


class Nereus:
    """A running stack over HTTP or gRPC."""

    def __init__(self, stack: Stack, model: Model, grpc: bool = False):
        self.name = "Nereus, V2 gRPC" if grpc else "Nereus, V2 HTTP"
        self._stack = stack
        self._grpc = grpc
        self._made = v2_grpc_requests(model) if grpc else v2_requests(model, KEY)

    def load(self, **given: Any) -> Load:
        sent, answers = self._made
        if self._grpc:
            return Load(self._stack.grpc_port, sent, answers, grpc_key=KEY, **given)
        return Load(self._stack.http_port, sent, answers, **given)

    def cpu_s(self) -> dict[str, float]:
        return self._stack.cpu_s()


class _Spawned:
    """A server of one program; a context manager. Its children's CPU time counts as its own."""

    name = ""

    def __init__(self, command: Sequence[str], port: int, folder: Path):
        self._command = command
        self._port = port
        self._log = folder / f"{self.name.replace(' ', '-')}.log"
        self._made: tuple[list[bytes], list[bytes]] = ([], [])

    def __enter__(self):
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + START_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > until:
                self.__exit__()
                raise StackError(f"{self.name}: not ready\n{self._log.read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def _ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def __exit__(self, *_error) -> None:
        # The whole group: it was started as a session of its own.
        for number, patience_s in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            if self._process.poll() is None:
                os.killpg(self._process.pid, number)
                try:
                    self._process.wait(patience_s)
                except subprocess.TimeoutExpired:
                    continue

    @property
    def pid(self) -> int:
        return self._process.pid

    def load(self, **given: Any) -> Load:
        return Load(self._port, *self._made, **given)

    def cpu_s(self) -> dict[str, float]:
        family = [self._process.pid, *(child.pid for child in psutil.Process(self._process.pid).children(True))]
        return {"all": sum(process_cpu_s(pid) for pid in family)}


class Bare(_Spawned):
    """The yardstick: :mod:`.bare` gets the same requests and answers with a part of them."""

    name = "bare echo"

    def __init__(self, folder: Path, model: Model):
        (port,) = free_ports(1)
        super().__init__([sys.executable, "-m", "benchmarks.query.bare", str(port), str(4 * OUTPUTS)], port, folder)
        sent, _ = v2_requests(model, KEY)
        self._made = sent, [request[-4 * OUTPUTS :] for request in sent]


class BareGrpc(_Spawned):
    """The yardstick of gRPC: :mod:`.bare_grpc`, as :class:`Bare`."""

    name = "bare gRPC echo"

    def __init__(self, folder: Path, model: Model):
        (port,) = free_ports(1)
        super().__init__(
            [sys.executable, "-m", "benchmarks.query.bare_grpc", str(port), str(4 * OUTPUTS)], port, folder
        )
        sent, _ = v2_grpc_requests(model)
        self._made = sent, [request[-4 * OUTPUTS :] for request in sent]

    def load(self, **given: Any) -> Load:
        return Load(self._port, *self._made, grpc_key=KEY, **given)


class Mosec(_Spawned):
    """mosec (https://github.com/mosecorg/mosec) with the same model file, one worker, dynamic batches."""

    name = "mosec"

    def __init__(self, folder: Path, model: Model, core: int):
        (port,) = free_ports(1)
        worker = Path(__file__).with_name("mosec_worker.py")
        shape = ",".join(str(size) for size in model.row)
        own = ["--port", str(port), "--path", str(folder / "mosec")]
        super().__init__([sys.executable, str(worker), str(model.path), shape, str(core), *own], port, folder)
        self._made = requests(model, lambda x: post("/inference", x.tobytes()))

    def _ready(self) -> bool:
        # It listens before its worker has loaded anything.
        try:
            with socket.create_connection(("127.0.0.1", self._port), 5) as client:
                client.sendall(self._made[0][0])
                return client.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    @staticmethod
    def installed() -> bool:
        return importlib.util.find_spec("mosec") is not None


RIVALS: Mapping[str, type[Mosec]] = {"mosec": Mosec}
