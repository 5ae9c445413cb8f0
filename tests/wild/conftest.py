"""One executor with all the models behind one gateway, real processes both."""

import asyncio
import threading

import msgspec
import pytest

from tests.executor.harness import Executor, application, resident, variant
from tests.gateway.conftest import GatewayProcess, config, gateways, wait_for
from workers.protocol.specs import DevicePlan, PlanSpec, Route

from . import models

__all__ = ["gateways"]

#: application -> (signature, model, padding)
SERVED = {
    "every": (models.EVERY, models.every, {}),
    "tokens": (models.TOKENS, models.tokens, {}),
    "padded": (models.TOKENS, models.tokens, {"ids": 7.0, "mask": 0.0}),
    "images": (models.IMAGES, models.images, {}),
    "vectors": (models.VECTORS, models.negative, {}),
    "single": (models.SINGLE, models.single, {}),
    "text": (models.TEXT, models.text, {}),
    "reciprocals": (models.RECIPROCALS, models.reciprocals, {}),
    "nulls": (models.RECIPROCALS, models.reciprocals, {}),
}
#: applications whose JSON answers have null for NaN and infinities
NULLS = ("nulls",)


@pytest.fixture(scope="module")
def loop():
    """An event loop in a thread of its own, for what outlives one test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda call: asyncio.run_coroutine_threadsafe(call, loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory, loop):
    """A gateway that serves :data:`SERVED` with the settings that it has by default."""
    folder = tmp_path_factory.mktemp("w")
    applications, residents, paths = [], [], []
    for number, (name, (signature, model, padding)) in enumerate(SERVED.items(), 1):
        path = model(folder / f"{name}.onnx")
        spec = application(name, 60.0, signature)
        non_finite = "null" if name in NULLS else "error"
        applications.append(msgspec.structs.replace(spec, padding=padding, non_finite=non_finite))
        residents.append(resident(variant(number, path, name, name="only"), seconds=0.001, max_batch=16))
        paths.append(path)
    executor = Executor(folder)

    async def start():
        await executor.__aenter__()
        return await executor.in_force(1, residents, applications, paths)

    state = loop(start())
    assert state.errors == {}
    device = DevicePlan(executor.info.id, executor.endpoint, tuple(residents))
    routes = tuple(Route(name, executor.info.id, 1.0) for name in SERVED)
    gateway = GatewayProcess(
        folder / "home", config(PlanSpec(1, (device,), routes), applications), NEREUS_MAX_REQUEST_MB="80"
    )
    wait_for(gateway.ready, "the gateway is ready")
    gateway.executor = executor
    yield gateway
    gateway.process.kill()
    gateway.process.wait()
    loop(executor.__aexit__())
