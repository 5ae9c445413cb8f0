"""A gateway process and devices of its own, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from subprocess import PIPE

import httpx2
import msgspec
import pytest
from websockets.sync.server import serve

from tests.forked import ForkedProcess, of_members
from tests.running import bare_environment, eventually, free_ports
from tools.waiting import eventually_async
from workers.dispatch import stacks
from workers.gateway.accounts import Accounts, Limits
from workers.gateway.front import Front
from workers.gateway.gateway import Gateway
from workers.gateway.metrics import GatewayMetrics
from workers.gateway.options import GatewayOptions
from workers.node.losses import how_it_ended
from workers.protocol import control, endings
from workers.protocol.control import GatewayConfig
from workers.protocol.datatypes import DATATYPES
from workers.protocol.frames import RequestShape, TensorHeader
from workers.protocol.specs import (
    ApplicationSpec,
    DevicePlan,
    PlanSpec,
    ProfilePoint,
    Resident,
    Route,
    Signature,
    TensorSpec,
    VariantSpec,
)
from workers.settings import Settings
from workers.v2.query import Terms, V2Query

KEY = "a-key-for-tests"
AUTH = {"Authorization": f"Bearer {KEY}"}
ROWS = 64
#: of ``numbers``
ROW = RequestShape(1, (TensorHeader("x", "FP32", (1, 4), 16),))

NUMBERS = Signature(
    (TensorSpec("x", "FP32", (-1, 4)),), (TensorSpec("y", "FP32", (-1, 4)), TensorSpec("n", "INT64", (-1,)))
)
WORDS = Signature((TensorSpec("text", "BYTES", (-1, 1)),), (TensorSpec("upper", "BYTES", (-1, 1)),))
EVERY = Signature(
    tuple(TensorSpec(d.lower(), d, (-1, 2)) for d in DATATYPES),
    tuple(TensorSpec("out_" + d.lower(), d, (-1, 2)) for d in DATATYPES),
)
SIGNATURES = {"numbers": NUMBERS, "words": WORDS, "every": EVERY, "nan": NUMBERS}
#: variant ids by application and name, with accuracies
VARIANTS = {
    "numbers": {"big": (1, 95.0), "small": (2, 80.0)},
    "words": {"only": (3, 90.0)},
    "every": {"only": (4, 90.0)},
    "nan": {"only": (5, 90.0)},
}


def application(name: str, slo_s: float = 60.0, late: str = "shed") -> ApplicationSpec:
    return ApplicationSpec(name, slo_s, SIGNATURES[name], late)


def warm(application: str, variant: str) -> list:
    id, accuracy = VARIANTS[application][variant]
    return [id, variant, application, accuracy]


def plan(
    version: int,
    placed: dict[str, list[tuple[str, str]]],
    endpoints: dict[str, str],
    stack: str = stacks.DEFAULT,
    batch: int = 1,
    row_s: float = 0.001,
) -> PlanSpec:
    """Make a plan in which an application's devices get equal shares.

    Args:
        placed: device -> [(application, variant)].
        batch: the most rows of a batch.
        row_s: how long a batch of up to ``batch`` rows takes, as profiled.
    """
    profile = tuple(ProfilePoint(rows, row_s, row_s, row_s) for rows in {1, batch})
    devices, by_application = [], {}
    for device, residents in placed.items():
        made = []
        for name, variant in residents:
            id, accuracy = VARIANTS[name][variant]
            best = max(of for _, of in VARIANTS[name].values())
            spec = VariantSpec(id, variant, name, "0" * 64, 1, accuracy, 100 * accuracy / best)
            made.append(Resident(spec, 8, 10.0, 0.5, profile))
            by_application.setdefault(name, []).append(device)
        devices.append(DevicePlan(device, endpoints[device], tuple(made)))
    routes = [Route(name, device, 1 / len(on)) for name, on in by_application.items() for device in on]
    return PlanSpec(version, tuple(devices), tuple(routes), stack=stack)


def config(plan: PlanSpec, applications: list[ApplicationSpec]) -> GatewayConfig:
    return GatewayConfig(
        applications=tuple(applications), key_hashes=(hashlib.sha256(KEY.encode()).hexdigest(),), plan=plan
    )


def free_port() -> int:
    return free_ports(1)[0]


def wait_for(condition, what: str, seconds: float = 300.0):
    return eventually(condition, seconds, why=what)


async def until(condition, what: str):
    return await asyncio.to_thread(wait_for, condition, what)


def new_front() -> Front:
    return Front(Accounts(GatewayMetrics(), Limits(10_000, 10_000, 1 << 30, 1000)))


def row_query(id: str = "", latency_s: float | None = None, body: memoryview | None = None) -> V2Query:
    body = body or memoryview(bytes(16))
    return V2Query(id, Terms(ROW, 1, (("y", True),), 16, latency_s), (body,), latency_s)


def gateway_options(home: Path, number: int = 1, **settings: str) -> GatewayOptions:
    """Options of a gateway in this process, on free ports unless ``settings`` name others."""
    http, grpc = free_ports(2)
    ports = {"NEREUS_HTTP": f"127.0.0.1:{http}", "NEREUS_GRPC": f"127.0.0.1:{grpc}"}
    made = Settings.from_environ({"NEREUS_HOME": str(home), "NEREUS_NODE_NAME": "box", **ports, **settings})
    made.make_folders()
    return GatewayOptions(made, number)


@contextlib.asynccontextmanager
async def fronts(folder: Path, given: GatewayConfig | None = None) -> AsyncIterator[tuple[Gateway, int, int]]:
    """A gateway in this process, which is ready if it is ``given`` a configuration, and its ports."""
    options = gateway_options(folder)
    gateway = Gateway(options)
    await gateway.start()
    try:
        if given is not None:
            gateway.configure(given)
            await eventually_async(lambda: gateway.ready)
        yield gateway, options.settings.http.port, options.settings.grpc.port
    finally:
        await gateway.stop(0.1)


class DeviceProcess:
    """A device and its events; its end is published if it is ``supervised``."""

    supervised = True

    def __init__(self, folder: Path, name: str):
        self.name = name
        self.endpoint = f"unix:{folder / name}.sock"
        self.events: list[dict] = []
        self.start()

    def start(self) -> None:
        Path(self.endpoint.removeprefix("unix:")).unlink(missing_ok=True)
        before = len(self.reported("listening"))
        self.process = of_members().start(
            *("-m", "tests.gateway.device", self.endpoint, self.name), stdin=PIPE, stdout=PIPE, text=True
        )
        threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True).start()
        threading.Thread(target=self._supervise, args=(self.process,), daemon=True).start()
        eventually(lambda: len(self.reported("listening")) > before, why=f"{self.name} listens", of=[self.process])

    def _listen(self, stream) -> None:
        for line in stream:
            self.events.append(json.loads(line))

    def _supervise(self, process: ForkedProcess) -> None:
        loss = how_it_ended(process.wait(), True, False, endings.fault_path(self.endpoint))
        if self.supervised:
            with contextlib.suppress(OSError):
                endings.write(self.endpoint, endings.Ending(process.pid, loss.crashed, loss.reason))

    @property
    def crashed(self) -> bool:
        # What it published the gateway may know before this process knows its status.
        ending = endings.read(self.endpoint, self.process.pid)
        return (ending is not None and ending.crashed) or self.process.poll() == -signal.SIGSEGV

    def reported(self, event: str) -> list[dict]:
        return [e for e in self.events if e["event"] == event]

    def said(self, event: str) -> list[dict]:
        """All that it has reported by now: reports come in order, but beside its answers."""
        self.tell()
        return self.reported(event)

    def tell(self, **command) -> None:
        before = len(self.reported("told"))
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        done = lambda: len(self.reported("told")) > before  # noqa: E731
        eventually(done, why=f"{self.name} carries out the command", of=[self.process])

    def warm(self, *variants: tuple[str, str]) -> None:
        self.tell(warm=[warm(*v) for v in variants])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)


def one_device(devices, version: int = 1) -> tuple[DeviceProcess, GatewayConfig]:
    """A device with a warm variant of ``numbers``, and a configuration by which it serves."""
    (device,) = devices("d0")
    device.warm(("numbers", "big"))
    placed = plan(version, {"d0": [("numbers", "big")]}, {"d0": device.endpoint})
    return device, config(placed, [application("numbers")])


#: runs a gateway with other constants
RUN = """
import importlib, json, runpy, sys
for name, value in json.loads(sys.argv.pop(1)).items():
    module, _, constant = name.rpartition(".")
    setattr(importlib.import_module(module), constant, value)
runpy.run_module("workers.gateway", run_name="__main__", alter_sys=True)
"""


class GatewayProcess:
    """A process ``python -m workers.gateway`` without a control plane.

    Its configuration is on disk.

    Args:
        beside: another process, whose home and ports it shares.
        number: which of several gateways it is.
        listens: whether to wait until it listens.
        constants: values of modules' constants that are too long for a test, by their full names.
    """

    def __init__(
        self,
        home: Path,
        config: GatewayConfig | None = None,
        beside: GatewayProcess | None = None,
        number: int = 1,
        listens: bool = True,
        constants: Mapping[str, float] | None = None,
        **settings: str,
    ):
        self.home = home = home if beside is None else beside.home
        port, grpc_port, nowhere = free_ports(3)
        self.port = port if beside is None else beside.port
        self.grpc = f"127.0.0.1:{grpc_port}" if beside is None else beside.grpc
        self.url = f"http{'s' * (settings.get('NEREUS_TLS') == 'on')}://127.0.0.1:{self.port}"
        members = home / "members"
        members.mkdir(parents=True, exist_ok=True)
        box = settings.get("NEREUS_NODE_NAME", "box")
        self.name = f"{box}-gateway" if number == 1 else f"{box}-gateway-{number}"
        paths = Settings.from_environ({"NEREUS_HOME": str(home)})
        self.admin_socket = paths.gateway_socket(number)
        self.file = members / f"gateway-{self.name}-config.json"
        if config is not None:
            self.file.write_bytes(msgspec.json.encode(config))
        environ = bare_environment()
        environ |= {
            "NEREUS_HOME": str(home),
            "NEREUS_HTTP": f"127.0.0.1:{self.port}",
            "NEREUS_GRPC": self.grpc,
            "NEREUS_NODE_NAME": "box",
            "NEREUS_QUEUE_ROWS": str(ROWS),
            "NEREUS_MAX_REQUEST_MB": "1",
            "NEREUS_CONTROL_URL": f"http://127.0.0.1:{nowhere}",
            **settings,
        }
        self.several = "NEREUS_GATEWAYS" in settings
        program = ["-m", "workers.gateway"] if not constants else ["-c", RUN, json.dumps(constants)]
        which = ["--number", str(number)]
        self.process = of_members().start(*program, *which, env=environ, stderr=PIPE, text=True)
        self.http = httpx2.Client(base_url=self.url, timeout=120, verify=False)
        self.log: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        if listens:
            eventually(self.listens, why="the gateway listens", of=[self])

    def _listen(self) -> None:
        for line in self.process.stderr:
            self.log.append(line)

    def listens(self) -> bool:
        if self.several:
            return self.admin_socket.exists()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def poll(self) -> int | None:
        return self.process.poll()

    def last_lines(self) -> str:
        return "".join(self.log[-40:])

    def logged(self, event: str) -> bool:
        return any(f'"event": "{event}"' in line for line in self.log)

    def ready(self) -> bool:
        return self.http.get("/v2/health/ready").status_code == 200

    def health(self) -> dict:
        return self.http.get("/health").json()

    def wait_ready(self) -> None:
        eventually(self.ready, why="the gateway is ready", of=[self])

    def post(self, path: str, body: dict | bytes, **headers: str) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(path, content=content, headers={**AUTH, **headers})

    def infer(self, x, application: str = "numbers", version: str | None = None, **parameters) -> httpx2.Response:
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(x), 4], "data": x}]}
        if parameters:
            body["parameters"] = parameters
        at = f"/versions/{version}" if version else ""
        return self.post(f"/v2/models/{application}{at}/infer", body)

    def client(self) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=200)
        return httpx2.AsyncClient(base_url=self.url, headers=AUTH, timeout=120, verify=False, limits=limits)

    async def together(self, *bodies: bytes) -> list[httpx2.Response]:
        """The answers to queries of ``numbers``, which are sent at the same time."""
        async with self.client() as http:
            return await asyncio.gather(*(http.post("/v2/models/numbers/infer", content=body) for body in bodies))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


class ControlPlane:
    """The other end of a gateway's link, which admits and configures it."""

    def __init__(self):
        self.messages: list = []
        self.connection = None
        self.connections: dict = {}
        #: answers a join's certificate request
        self.issue = lambda join: control.IssuedCertificate()
        self.server = serve(self._talk, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.socket.getsockname()[1]}"
        self.first: control.GatewayConfig | None = None
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _talk(self, connection) -> None:
        with contextlib.suppress(Exception):
            for text in connection:
                message = control.decode_from_gateway(text)
                self.messages.append(message)
                if isinstance(message, control.JoinGateway):
                    connection.send(
                        control.encode(control.Joined(member=1, credential="c", issued=self.issue(message)))
                    )
                    if self.first is not None:
                        connection.send(control.encode(self.first))
                    self.connection = self.connections[message.name] = connection

    def send(self, config: control.GatewayConfig) -> None:
        for connection in self.connections.values():
            connection.send(control.encode(config))

    def received(self, kind: type) -> list:
        return [message for message in self.messages if isinstance(message, kind)]


@pytest.fixture
def control_plane():
    plane = ControlPlane()
    yield plane
    plane.server.shutdown()


@pytest.fixture
def devices(tmp_path_factory):
    """Starts devices by name; their socket paths are short."""
    folder = tmp_path_factory.mktemp("d")
    made: list[DeviceProcess] = []

    def start(*names: str) -> list[DeviceProcess]:
        made.extend(DeviceProcess(folder, name) for name in names)
        return made[-len(names) :]

    yield start
    for device in made:
        with contextlib.suppress(ProcessLookupError):
            device.signal(signal.SIGCONT)
        device.kill()


@pytest.fixture
def gateways(tmp_path):
    made: list[GatewayProcess] = []

    def start(*args, home: Path | None = None, **kwargs) -> GatewayProcess:
        made.append(GatewayProcess(home or tmp_path / f"home{len(made)}", *args, **kwargs))
        return made[-1]

    yield start
    for gateway in made:
        gateway.process.kill()
        gateway.process.wait()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One gateway with one device that serves everything; tests change neither."""
    folder = tmp_path_factory.mktemp("s")
    device = DeviceProcess(folder, "d0")
    placed = {"d0": [("numbers", "big"), ("words", "only"), ("every", "only"), ("nan", "only")]}
    device.warm(*placed["d0"])
    applications = [application(name) for name in SIGNATURES]
    gateway = GatewayProcess(
        folder / "home", config(plan(1, placed, {"d0": device.endpoint}), applications), NEREUS_LOG_LEVEL="debug"
    )
    gateway.wait_ready()
    gateway.device = device
    yield gateway
    gateway.process.kill()
    gateway.process.wait()
    device.kill()
