"""One real executor behind one real gateway, for which trouble is made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.executor.harness import WIDE, Executor, application, resident, save_graph, turning, variant
from tests.gateway.conftest import GatewayProcess, config, devices, gateways, wait_for  # noqa: F401 - fixtures
from workers.protocol.frames import ExecutorState
from workers.protocol.specs import DevicePlan, PlanSpec, Route, Signature, TensorSpec

from .bystanders import Bystanders

COLUMNS = 16 * 1024
#: 64 KB a row, there and back
LARGE = Signature((TensorSpec("x", "FP32", (-1, COLUMNS)),), (TensorSpec("y", "FP32", (-1, COLUMNS)),))
MAX_REQUEST_MB = 16
MIB = 1024 * 1024
#: long enough for a busy machine, and below the 30 s after which a slow client is given up: to wait for one shows
SLO_S = 20.0


def negative(path: Path) -> Path:
    return save_graph(path, f"g (float[b, {COLUMNS}] x) => (float[b, {COLUMNS}] y) {{ y = Neg(x) }}")


class Served:
    """A gateway and an executor that serve three applications.

    ``app``: a quick classifier; ``large``: 64 KB a row, negated; ``slow``: about 0.2 s a row, up to 16 together.
    """

    def __init__(self, gateway: GatewayProcess, executor: Executor, models: dict[str, Path], run: Callable):
        self.gateway = gateway
        #: runs a coroutine where the executor's peers live
        self.run = run
        self.executor = executor
        self.models = models
        self.processes = {
            "gateway": psutil.Process(gateway.process.pid),
            "executor": psutil.Process(executor.process.pid),
        }

    def rss(self, name: str) -> int:
        return self.processes[name].memory_info().rss

    def connections(self, name: str) -> int:
        """Sockets that a process has open, those that it listens on left out."""
        sockets = self.processes[name].net_connections("all")
        return sum(one.status != psutil.CONN_LISTEN for one in sockets)

    def errors(self) -> list[str]:
        """The gateway's own errors; that there is no control plane is none."""
        return [line for line in self.gateway.log if '"level": "error"' in line and "link_refused" not in line]

    def idle(self) -> bool:
        health = self.gateway.health()
        return health["in_flight"] == 0 and health["held"] == 0 and not sum(self.queued().values())

    def queued(self) -> dict[str, int]:
        return self.executor.peers[-1].state().queued

    def bystanders(self, **given) -> Bystanders:
        return Bystanders(self.gateway, self.models["app"], **given)

    def peer(self, role: str):
        return self.run(self.executor.peer(role))


@pytest.fixture(scope="session")
def loop():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda call: asyncio.run_coroutine_threadsafe(call, loop).result(120)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="session")
def stack(tmp_path_factory, loop, tiny_models):
    folder = tmp_path_factory.mktemp("p")
    models = {
        "app": tiny_models["quick"],
        "large": negative(folder / "large.onnx"),
        "slow": turning(folder / "slow.onnx", 60_000),
    }
    signatures = {"large": LARGE, "slow": WIDE}
    specs, residents = [], []
    for number, (name, path) in enumerate(models.items(), 1):
        given = {"signature": signatures[name]} if name in signatures else {}
        specs.append(application(name, 120.0 if name == "slow" else SLO_S, **given))
        seconds = 0.2 if name == "slow" else 0.001
        residents.append(resident(variant(number, path, name, name="only"), seconds, max_batch=16))
    executor = Executor(folder)

    async def start() -> ExecutorState:
        await executor.__aenter__()
        return await executor.in_force(1, residents, specs, list(models.values()))

    assert loop(start()).errors == {}
    device = DevicePlan(executor.info.id, executor.endpoint, tuple(residents))
    plan = PlanSpec(1, (device,), tuple(Route(name, executor.info.id, 1.0) for name in models))
    gateway = GatewayProcess(
        folder / "home",
        config(plan, specs),
        NEREUS_MAX_REQUEST_MB=str(MAX_REQUEST_MB),
        NEREUS_QUEUE_ROWS="4096",
        # So that what is resident is what is held, and not what the allocator keeps for later.
        MALLOC_MMAP_THRESHOLD_=str(MIB),
    )
    gateway.wait_ready()
    yield Served(gateway, executor, models, loop)
    gateway.process.kill()
    gateway.process.wait()
    loop(executor.__aexit__())


@pytest.fixture
def served(stack):
    """Yield the stack, and afterwards prove that nothing of the trouble is left."""
    wait_for(stack.idle, "nothing is under way")
    before = {name: stack.connections(name) for name in stack.processes}
    logged = len(stack.errors())
    yield stack
    wait_for(stack.idle, "nothing is under way any more")
    for name, count in before.items():
        wait_for(lambda name=name, count=count: stack.connections(name) <= count, f"{name} has closed what was opened")
    assert stack.gateway.process.poll() is None
    assert stack.executor.process.returncode is None
    assert stack.errors()[logged:] == []


@pytest.fixture(scope="session")
def numbers() -> np.ndarray:
    return np.random.default_rng(7).standard_normal((4, COLUMNS), dtype=np.float32)
