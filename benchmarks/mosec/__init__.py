"""mosec (https://github.com/mosecorg/mosec), a server to compare with.

Its front is written in Rust. It serves the same model with one worker on the executor's core and dynamic batches.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import psutil

from appliance.load.requests import post
from appliance.load.sender import Load
from tools.child import free_ports
from tools.waiting import eventually

from ..harness import process_cpu_s, requests
from ..models import Model

START_S = 60.0


class Mosec:
    """A running server, a context manager.

    Args:
        python: an interpreter that has mosec, numpy and onnxruntime.
        batch: rows of a batch at most.

    Raises:
        RuntimeError: it does not start.
    """

    name = "mosec"

    def __init__(self, python: str, folder: Path, model: Model, batch: int):
        (self._port,) = free_ports(1)
        self._made = requests(model, lambda x: post("/inference", x.tobytes(), {}))
        core = str(min(os.sched_getaffinity(0)))
        worker, shape = Path(__file__).with_name("worker.py"), ",".join(str(size) for size in model.row)
        own = ["--port", str(self._port), "--path", str(folder / "mosec")]
        command = [python, str(worker), str(model.path), shape, core, str(batch), *own]
        with (folder / "mosec.log").open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)

    def __enter__(self) -> Mosec:
        eventually(self._ready, START_S, why="mosec ready", of=[self._process])
        return self

    def __exit__(self, *_error) -> None:
        # The whole group: it was started as a session of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _ready(self) -> bool:
        # It listens before its worker has loaded anything.
        try:
            with socket.create_connection(("127.0.0.1", self._port), 5) as client:
                client.sendall(self._made[0][0])
                return client.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    def load(self, options: dict[str, Any], connections: int, idle: int, _protocol: str) -> Load:
        sent, answers = self._made
        return Load(self._port, sent, {"": answers}, connections=connections, idle=idle, **options)

    def cpu_s(self) -> dict[str, float]:
        family = [self._process.pid, *(child.pid for child in psutil.Process(self._process.pid).children(True))]
        return {"server": sum(process_cpu_s(pid) for pid in family)}
