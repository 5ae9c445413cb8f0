"""Queries wait in the gateway and go to real executors in batches.

Each is answered once, whatever changes.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import re
import signal
import statistics
import time
from pathlib import Path

import httpx2
import msgspec
import numpy as np
import onnxruntime
import pytest

from tests.executor.harness import WIDE, Executor, application, resident, turning, variant
from tests.pressure.wire import answer, post
from tools.waiting import eventually_async
from workers.protocol.specs import DevicePlan, PlanSpec, Route

from .conftest import AUTH, GatewayProcess, config, wait_for

#: time enough on any machine: what is refused, is refused for another reason
APP = application("app", 60.0)
PATH = "/v2/models/app/infer"


def body(seed: int = 0) -> dict:
    data = np.random.default_rng(seed).normal(size=4).astype(np.float32).tolist()
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": data}]}


def plan_of(version: int, executors: list[Executor], *residents, stack: str = "nereus", relief=()) -> PlanSpec:
    devices = tuple(DevicePlan(e.info.id, e.endpoint, residents, relief=tuple(relief)) for e in executors)
    routes = tuple(Route("app", e.info.id, 1 / len(executors)) for e in executors)
    return PlanSpec(version, devices, routes, stack=stack)


async def until(condition, what: str):
    return await asyncio.to_thread(wait_for, condition, what)


def counted(gateway: GatewayProcess, metric: str) -> float:
    lines = re.findall(rf"^{metric}(?:{{[^}}]*}})? (\S+)$", gateway.http.get("/metrics").text, re.MULTILINE)
    return sum(map(float, lines))


def outstanding(gateway: GatewayProcess) -> str:
    lines = gateway.http.get("/metrics").text.splitlines()
    return next(line for line in lines if line.startswith('nereus_gateway_outstanding{device="box/cpu0"'))


class World:
    """Executors that serve the quick and the heavy model, and gateways before them."""

    def __init__(self, gateways, models, folder):
        self.gateways, self.models, self.folder = gateways, dict(models), folder
        self.stack = contextlib.AsyncExitStack()
        self.executors: list[Executor] = []
        self.heavy = resident(variant(1, models["heavy"], accuracy=99.0, name="heavy"), 0.006, max_batch=8)
        self.quick = resident(variant(2, models["quick"], accuracy=80.0, name="quick"), 0.0005, max_batch=8)

    async def start(self, count: int, *residents, relief=(), app=APP, **given) -> GatewayProcess:
        for i in range(count):
            (self.folder / str(i)).mkdir()
            executor = Executor(self.folder / str(i), device=f"box/cpu{i}")
            self.executors.append(await self.stack.enter_async_context(executor))
        self.apply(1, *residents, relief=relief, app=app)
        gateway = self.gateways(config(plan_of(1, self.executors, *residents, relief=relief), [app]), **given)
        await self.warm(gateway, count * (len(residents) + len(relief)))
        return gateway

    def apply(self, version: int, *residents, relief=(), app=APP) -> None:
        for executor in self.executors:
            executor.apply(version, list(residents), [app], list(self.models.values()), relief=list(relief))

    async def warm(self, gateway: GatewayProcess, variants: int) -> None:
        def all_warm():
            return sum(len(d["warm"]) for d in gateway.health()["devices"].values()) >= variants

        await until(all_warm, "the gateway knows what is warm")


@pytest.fixture
async def world(gateways, tiny_models, tmp_path):
    made = World(gateways, tiny_models, tmp_path)
    async with made.stack:
        yield made


def client(*gateways: GatewayProcess) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=200)
    return httpx2.AsyncClient(headers=AUTH, timeout=120, verify=False, limits=limits)


async def together(gateway: GatewayProcess, bodies: list[dict]) -> list[tuple[int, dict]]:
    """Send queries in one go, and return (status, body) of each answer.

    Their connections are opened before.
    """
    opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", gateway.port) for _ in bodies))
    asked = [post(PATH, json.dumps(one).encode(), **AUTH) for one in bodies]
    for (_, writer), data in zip(opened, asked, strict=True):
        writer.write(data)
    found = [await answer(reader) for reader, _ in opened]
    for _, writer in opened:
        writer.close()
    return [(status, json.loads(content)) for status, _, content in found]


def seconds_of(path: Path) -> float:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        session.run(None, {"x": np.ones((1, 4), np.float32)})
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


async def load(http, gateway, stop: asyncio.Event, found: collections.Counter, clients: int = 8) -> None:
    """Send queries one after the other from each client until ``stop`` is set.

    ``found`` gets the number of answers by (status, variant or error).
    """

    async def one() -> None:
        while not stop.is_set():
            answer = await http.post(gateway.url + PATH, json=body())
            content = answer.json()
            found[answer.status_code, content.get("model_version") or content.get("error")] += 1

    await asyncio.gather(*(one() for _ in range(clients)))


async def reached(found: collections.Counter, key, count: int) -> None:
    await eventually_async(lambda: found[key] >= count)


async def test_queries_that_come_together_run_together_and_get_their_own_answers(world, tiny_models):
    gateway = await world.start(1, world.heavy)
    found = await together(gateway, [body(i) for i in range(48)])
    session = onnxruntime.InferenceSession(str(tiny_models["heavy"]), providers=["CPUExecutionProvider"])
    for i, (status, content) in enumerate(found):
        assert status == 200, content
        x = np.array(body(i)["inputs"][0]["data"], np.float32).reshape(1, 4)
        np.testing.assert_allclose(
            content["outputs"][0]["data"], session.run(None, {"x": x})[0][0], rtol=1e-3, atol=1e-4
        )
    assert max(content["parameters"]["batch_size"] for _, content in found) > 2
    assert counted(gateway, "nereus_gateway_grant_rows_sum") == 48
    assert counted(gateway, "nereus_gateway_grant_rows_count") < 48
    # The wait counts, wherever it was.
    assert max(content["parameters"]["queue_ms"] for _, content in found) > 500 * seconds_of(tiny_models["heavy"])
    assert counted(gateway, "nereus_gateway_held") == 0
    assert gateway.health()["in_flight"] == 0


async def test_a_burst_steps_down_in_accuracy_and_nobody_is_refused(world, tmp_path):
    slow_path, quick_path = turning(tmp_path / "slow.onnx", 300_000), turning(tmp_path / "quick.onnx", 1)
    world.models = {"slow": slow_path, "quick": quick_path}
    # Whatever the machine's pace is, the accurate variant has time for no more than a few of so many queries.
    count, row_s = 60, seconds_of(slow_path)
    app = application("app", max(4.0, 10 * row_s), WIDE)
    slow = resident(variant(1, slow_path, accuracy=99.9, name="slow"), row_s, max_batch=1)
    quick = resident(variant(2, quick_path, accuracy=80.0, name="quick"), 0.0005, max_batch=8)
    gateway = await world.start(1, slow, relief=[quick], app=app, NEREUS_QUEUE_ROWS=str(count))
    async with client() as http:
        calm = [await http.post(gateway.url + PATH, json=body()) for _ in range(3)]
    burst = await together(gateway, [body(i) for i in range(count)])
    assert {answer.json()["model_version"] for answer in calm} == {"slow"}
    statuses = collections.Counter(status for status, _ in burst)
    assert statuses[200] > 5 / 6 * count, statuses
    assert "quick" in {content.get("model_version") for _, content in burst}


@pytest.mark.parametrize("insists", [{"version": "heavy"}, {"min_accuracy": 95}])
async def test_constrained_queries_are_held_with_the_others_and_get_what_they_ask_for(world, insists):
    app = application("app", 60.0)
    gateway = await world.start(1, world.heavy, relief=[world.quick], app=app)
    path = f"/v2/models/app/versions/{insists['version']}/infer" if "version" in insists else PATH
    asked = body() | ({"parameters": insists} if "min_accuracy" in insists else {})
    async with client() as http:
        held = [http.post(gateway.url + PATH, json=body()) for _ in range(60)]
        constrained = [http.post(gateway.url + path, json=asked) for _ in range(6)]
        found = await asyncio.gather(*held, *constrained)
    assert {answer.status_code for answer in found} == {200}
    assert {answer.json()["model_version"] for answer in found[60:]} == {"heavy"}
    assert counted(gateway, "nereus_gateway_grant_rows_sum") == 66


async def test_a_device_killed_with_batches_under_way_has_each_query_answered_once(world):
    gateway = await world.start(2, world.heavy, relief=[world.quick])
    found: collections.Counter = collections.Counter()
    stop = asyncio.Event()
    async with client() as http:
        running = asyncio.create_task(load(http, gateway, stop, found, clients=24))
        await reached(found, (200, "heavy"), 50)
        victim = world.executors[0].process
        victim.send_signal(signal.SIGSTOP)
        await until(lambda: 'device="box/cpu0"} 0.0' not in outstanding(gateway), "a batch is under way there")
        victim.kill()
        await world.executors[0].ended()
        before = sum(found.values())
        await reached_any(found, before + 60)
        stop.set()
        await running
    # There was always time for another device.
    assert {status for status, _ in found} == {200}, found
    assert counted(gateway, "nereus_gateway_queries_total") == sum(found.values())
    assert counted(gateway, "nereus_gateway_rerouted_total") > 0
    assert gateway.health()["in_flight"] == 0


async def reached_any(found: collections.Counter, count: int) -> None:
    await eventually_async(lambda: sum(found.values()) >= count)


async def test_switching_the_stack_under_load_fails_no_query(world, control_plane):
    # Served all the same if the machine is busy.
    app = application("app", 1.0, late="serve")
    gateway = await world.start(2, world.quick, app=app, NEREUS_CONTROL_URL=control_plane.url, NEREUS_JOIN_TOKEN="t")
    await until(lambda: control_plane.connection, "the gateway joined")
    found: collections.Counter = collections.Counter()
    stop = asyncio.Event()
    async with client() as http:
        running = asyncio.create_task(load(http, gateway, stop, found))
        for version, stack in enumerate(("infaas-accuracy", "nereus", "clipper-ha", "proteus", "nereus"), 2):
            world.apply(version, world.quick, app=app)
            control_plane.send(config(plan_of(version, world.executors, world.quick, stack=stack), [app]))
            await until(lambda version=version: gateway.health()["plan"]["adopted"] == version, f"plan {version}")
            await reached_any(found, sum(found.values()) + 40)
        stop.set()
        await running
    assert {status for status, _ in found} == {200}, found


async def test_a_second_core_stands_by_and_takes_over(world):
    first = await world.start(2, world.heavy, relief=[world.quick], NEREUS_NODE_NAME="one")
    plan = plan_of(1, world.executors, world.heavy, relief=[world.quick])
    second = world.gateways(config(plan, [APP]), NEREUS_NODE_NAME="two")
    found: collections.Counter = collections.Counter()
    stop = asyncio.Event()
    async with client() as http:
        assert (await http.post(second.url + PATH, json=body())).status_code == 503, "it has no device"
        running = asyncio.create_task(load(http, first, stop, found, clients=12))
        await reached_any(found, 100)
        stop.set()
        await running
        assert {status for status, _ in found} == {200}, found
        first.process.kill()
        await world.warm(second, 4)
        stop.clear()
        found.clear()
        running = asyncio.create_task(load(http, second, stop, found, clients=12))
        await reached_any(found, 100)
        stop.set()
        await running
    assert {status for status, _ in found} == {200}, found
    assert second.health()["in_flight"] == 0


async def test_a_core_that_stops_leaves_its_devices_to_the_other_one_at_once(world):
    first = await world.start(1, world.quick, NEREUS_NODE_NAME="one")
    second = world.gateways(config(plan_of(1, world.executors, world.quick), [APP]), NEREUS_NODE_NAME="two")
    first.stop()
    # A lease that nobody releases would have a second left at least.
    await world.warm(second, 1)
    async with client() as http:
        assert (await http.post(second.url + PATH, json=body())).status_code == 200


async def test_an_application_that_goes_has_what_is_held_for_it_ended(world, control_plane, tmp_path):
    path = turning(tmp_path / "slow.onnx", 300_000)
    world.models = {"slow": path}
    app = application("app", 600.0, WIDE)
    slow = resident(variant(1, path, name="slow"), 0.5, max_batch=1)
    gateway = await world.start(1, slow, app=app, NEREUS_CONTROL_URL=control_plane.url, NEREUS_JOIN_TOKEN="t")
    await until(lambda: control_plane.connection, "the gateway joined")
    waiting = asyncio.create_task(together(gateway, [body(i) for i in range(120)]))
    await until(lambda: gateway.health()["held"] > 80, "queries are held")
    control_plane.send(msgspec.structs.replace(config(PlanSpec(2), []), plan=PlanSpec(2)))
    statuses = collections.Counter(status for status, _ in await waiting)
    assert statuses[503] > 5 and set(statuses) <= {200, 503, 404}, statuses
    assert await until(lambda: gateway.health()["in_flight"] == 0, "nothing stays behind")
    assert gateway.health()["held"] == 0


async def test_a_gateway_that_stops_answers_what_it_holds(world):
    slow = msgspec.structs.replace(world.heavy, max_batch=1)
    gateway = await world.start(1, slow, app=application("app", 600.0))
    async with client() as http:
        wide = body()
        wide["inputs"][0] |= {"shape": [60, 4], "data": wide["inputs"][0]["data"] * 60}
        waiting = [asyncio.create_task(http.post(gateway.url + PATH, json=wide)) for _ in range(60)]
        await until(lambda: gateway.health()["held"] > 30 or any(w.done() for w in waiting), "queries are held")
        assert await asyncio.to_thread(gateway.stop) == 0
        found = await asyncio.gather(*waiting, return_exceptions=True)
    answered = collections.Counter(getattr(answer, "status_code", type(answer).__name__) for answer in found)
    assert answered[503] > 5 and set(answered) <= {200, 503}, answered
