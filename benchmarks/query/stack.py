"""A gateway and an executor as real processes, configured as a plan of the control plane would.

The control plane is played by this process: it admits the gateway and takes its reports, so that the gateway sends
all that it sends in an appliance; and it is the executor's node, which hands it the plan and takes its statistics.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from websockets.sync.server import serve

from tests.running import free_ports
from workers.protocol import control, frames
from workers.protocol.specs import (
    ApplicationSpec,
    DeviceInfo,
    DevicePlan,
    DeviceStats,
    Plan,
    ProfilePoint,
    Resident,
    Route,
    VariantSpec,
)

from .models import Model

KEY = "a-key-for-benchmarks"
MAX_BATCH = 16
DEVICE = "box/cpu0"
START_S = 60.0


class StackError(RuntimeError):
    """A server process did not start or ended; the message has its log."""


class _ControlPlane:
    """Admits gateways and reads what they report."""

    def __init__(self) -> None:
        self._server = serve(self._talk, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _talk(self, connection) -> None:
        with contextlib.suppress(Exception):
            for text in connection:
                if isinstance(control.decode_from_gateway(text), control.JoinGateway):
                    connection.send(control.encode(control.Joined(member=1, credential="c")))

    def close(self) -> None:
        self._server.shutdown()


class _Node:
    """The executor's node, in a thread of its own: hands over the plan and reads all that is reported."""

    def __init__(self, endpoint: str, apply: frames.Apply):
        self._endpoint = endpoint
        self._apply = apply
        self._loop = asyncio.new_event_loop()
        self._connection: frames.FrameConnection | None = None
        self.warm: tuple[int, ...] = ()
        self.detail = ""
        #: (when it came, by ``time.monotonic()``; one second of the device), in order
        self.seconds: list[tuple[float, DeviceStats]] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._joining = asyncio.run_coroutine_threadsafe(self._join(), self._loop)

    async def _join(self) -> None:
        while self._connection is None:
            with contextlib.suppress(OSError):
                self._connection = await frames.connect(self._endpoint, self._make)
            await asyncio.sleep(0.02)
        self._connection.send(frames.Hello("node", "benchmark"))
        self._connection.send(self._apply)

    def _make(self) -> frames.FrameConnection:
        return frames.FrameConnection(frames.FromExecutor, self._heard, lambda *_: None)

    def _heard(self, _connection, message: frames.Frame, _body: memoryview) -> None:
        if isinstance(message, frames.StateReport):
            self.warm, self.detail = message.state.warm, message.state.detail
        elif isinstance(message, frames.StatsReport):
            self.seconds.append((time.monotonic(), message.stats))

    def close(self) -> None:
        self._joining.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


class Stack:
    """One executor on one core with the models, and one gateway; a context manager.

    Args:
        profiles: by model name, the session's median seconds by batch size, as profiling would have found them.
        of: further environment by process (``gateway``, ``executor``).

    Raises (on entering):
        StackError: a process did not start.
    """

    def __init__(
        self,
        folder: Path,
        models: Sequence[Model],
        profiles: Mapping[str, Mapping[int, float]],
        of: Mapping[str, Mapping[str, str]] | None = None,
    ):
        self.core = min(os.sched_getaffinity(0))
        self._folder = folder
        self._of = of or {}
        self.http_port, self.grpc_port = free_ports(2)
        endpoint = f"unix:{folder}/executor.sock"
        self._info = DeviceInfo(DEVICE, "cpu", "benchmark", "", (self.core,), None, 0, endpoint)
        self._applications = tuple(ApplicationSpec(model.name, model.slo_s, model.signature) for model in models)
        residents = tuple(_resident(i, model, profiles[model.name]) for i, model in enumerate(models, 1))
        device = DevicePlan(DEVICE, endpoint, residents)
        self._plan = Plan(1, (device,), tuple(Route(model.name, DEVICE, 1.0) for model in models))
        files = {one.variant.digest: str(model.path) for one, model in zip(residents, models, strict=True)}
        self._apply = frames.Apply(1, device, self._applications, files)
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("NEREUS_")}
        self._processes: dict[str, subprocess.Popen] = {}
        self._control: _ControlPlane | None = None
        self._node: _Node | None = None

    def __enter__(self) -> Stack:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        folder, base = self._folder, self._environment
        self._control = _ControlPlane()
        (folder / "device.json").write_bytes(msgspec.json.encode(self._info))
        own = ["-m", "workers.executor", "--device", str(folder / "device.json"), "--parent", str(os.getpid())]
        self._spawn("executor", own, base | {"NEREUS_HOME": str(folder / "executor")})
        self._node = _Node(self._info.endpoint, self._apply)
        wanted = {one.variant.id for one in self._apply.plan.residents}
        self._until("executor", lambda: wanted <= set(self._node.warm))
        members = folder / "gateway" / "members"
        members.mkdir(parents=True)
        config = control.GatewayConfig(
            applications=self._applications, key_hashes=(hashlib.sha256(KEY.encode()).hexdigest(),), plan=self._plan
        )
        (members / "gateway-box-gateway-config.json").write_bytes(msgspec.json.encode(config))
        settings = {
            "NEREUS_HOME": str(folder / "gateway"),
            "NEREUS_NODE_NAME": "box",
            "NEREUS_HTTP": f"127.0.0.1:{self.http_port}",
            "NEREUS_GRPC": f"127.0.0.1:{self.grpc_port}",
            "NEREUS_CONTROL_URL": self._control.url,
            "NEREUS_JOIN_TOKEN": "t",
        }
        self._spawn("gateway", ["-m", "workers.gateway"], base | settings)
        self._until("gateway", self._ready)

    def _spawn(self, name: str, arguments: list[str], environment: dict[str, str]) -> None:
        with open(self._folder / f"{name}.log", "wb") as log:
            environment = environment | dict(self._of.get(name, {}))
            self._processes[name] = subprocess.Popen(
                [sys.executable, *arguments], env=environment, stdout=log, stderr=log
            )

    def _ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.http_port), 5) as client:
            client.sendall(b"GET /v2/health/ready HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            return client.recv(64).startswith(b"HTTP/1.1 200")
        return False

    def _until(self, name: str, condition) -> None:
        until = time.monotonic() + START_S
        while not condition():
            if self._processes[name].poll() is not None or time.monotonic() > until:
                log = (self._folder / f"{name}.log").read_text()[-2000:]
                raise StackError(f"{name}: not ready; {self._node.detail if self._node else ''}\n{log}")
            time.sleep(0.02)

    def __exit__(self, *_error) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for part in (self._node, self._control):
            if part is not None:
                part.close()

    @property
    def grpc(self) -> bool:
        """Whether the gateway offers V2 gRPC."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.grpc_port)) == 0

    def pid(self, name: str) -> int:
        """Of ``gateway`` or ``executor``."""
        return self._processes[name].pid

    def check(self) -> None:
        """Raises StackError: a process has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise StackError(f"{name}: ended\n{(self._folder / f'{name}.log').read_text()[-2000:]}")

    def device_seconds(self, start: float, end: float) -> list[DeviceStats]:
        """What the executor told of each of its seconds between two moments of ``time.monotonic()``."""
        return [stats for at, stats in list(self._node.seconds) if start <= at < end]

    def cpu_s(self) -> dict[str, float]:
        """Seconds of CPU time that each process has taken so far."""
        self.check()
        return {name: process_cpu_s(process.pid) for name, process in self._processes.items()}


def process_cpu_s(pid: int) -> float:
    """Seconds of CPU time of a process with all its threads, to the nanosecond.

    ``/proc`` counts in steps of 10 ms; the kernel's clock of another process does not (clock_getcpuclockid(3)).
    """
    return time.clock_gettime((~pid << 3) | 2)


def _resident(id: int, model: Model, profile: Mapping[int, float]) -> Resident:
    data = model.path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    variant = VariantSpec(id, f"{model.name}-only", model.name, digest, len(data), 90.0, 100.0)
    points = tuple(ProfilePoint(batch, s, s, s, 20) for batch, s in sorted(profile.items()))
    return Resident(variant, MAX_BATCH, 100.0, 0.5, points)
