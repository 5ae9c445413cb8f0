"""Queries wait in the gateway and go to real executors in batches."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import re
import statistics
import time
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc.aio as triton

from tests.executor.harness import WIDE, Executor, application, resident, turning, variant
from tests.pressure.wire import answer, post
from workers.protocol.specs import DevicePlan, PlanSpec, Route

from .conftest import AUTH, GatewayProcess, config, until

#: time enough on any machine: what is refused, is refused for another reason
APP = application("app", 60.0)
PATH = "/v2/models/app/infer"


def inputs(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1, 4)).astype(np.float32)


def body(seed: int = 0) -> dict:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": inputs(seed).tolist()}]}


def plan_of(version: int, executors: list[Executor], *residents, stack: str = "nereus", standby=()) -> PlanSpec:
    devices = tuple(DevicePlan(e.info.id, e.endpoint, residents, standby_residents=tuple(standby)) for e in executors)
    routes = tuple(Route("app", e.info.id, 1 / len(executors)) for e in executors)
    return PlanSpec(version, devices, routes, stack=stack)


def counted(gateway: GatewayProcess, metric: str) -> float:
    lines = re.findall(rf"^{metric}(?:{{[^}}]*}})? (\S+)$", gateway.http.get("/metrics").text, re.MULTILINE)
    return sum(map(float, lines))


class World:
    """Executors that serve the quick and the heavy model, and gateways before them."""

    def __init__(self, gateways, models, folder):
        self.gateways, self.models, self.folder = gateways, dict(models), folder
        self.stack = contextlib.AsyncExitStack()
        self.executors: list[Executor] = []
        self.heavy = resident(variant(1, models["heavy"], accuracy=99.0, name="heavy"), 0.006, max_batch=8)
        self.quick = resident(variant(2, models["quick"], accuracy=80.0, name="quick"), 0.0005, max_batch=8)

    async def start(self, count: int, *residents, standby=(), app=APP, **given) -> GatewayProcess:
        for i in range(count):
            (self.folder / str(i)).mkdir()
            executor = Executor(self.folder / str(i), device=f"box/cpu{i}")
            self.executors.append(await self.stack.enter_async_context(executor))
        self.apply(1, *residents, standby=standby, app=app)
        gateway = self.gateways(config(plan_of(1, self.executors, *residents, standby=standby), [app]), **given)
        await self.warm(gateway, count * (len(residents) + len(standby)))
        return gateway

    def apply(self, version: int, *residents, standby=(), app=APP) -> None:
        for executor in self.executors:
            executor.apply(version, list(residents), [app], list(self.models.values()), standby=list(standby))

    async def warm(self, gateway: GatewayProcess, variants: int) -> None:
        def all_warm():
            return sum(len(d["warm"]) for d in gateway.health()["devices"].values()) >= variants

        await until(all_warm, "the gateway knows what is warm")


@pytest.fixture
async def world(gateways, tiny_models, tmp_path):
    made = World(gateways, tiny_models, tmp_path)
    async with made.stack:
        yield made


async def together(gateway: GatewayProcess, bodies: list[dict]) -> list[tuple[int, dict]]:
    """(status, body) of each query; all are sent in one go, on open connections."""
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


async def test_queries_over_both_protocols_run_together_and_get_their_own_answers(world, tiny_models):
    gateway, count = await world.start(1, world.heavy), 24

    async def over_grpc(client: triton.InferenceServerClient, x: np.ndarray) -> tuple[np.ndarray, int, float]:
        tensor = triton.InferInput("x", [1, 4], "FP32").set_data_from_numpy(x)
        result = await client.infer("app", [tensor], headers={"authorization": AUTH["Authorization"]})
        told = result.get_response().parameters
        return result.as_numpy("y"), told["batch_size"].int64_param, told["queue_ms"].double_param

    async with triton.InferenceServerClient(gateway.grpc) as client:
        asked = [asyncio.create_task(over_grpc(client, inputs(i))) for i in range(count, 2 * count)]
        found = await together(gateway, [body(i) for i in range(count)])
        answers = [
            (c["outputs"][0]["data"], c["parameters"]["batch_size"], c["parameters"]["queue_ms"]) for _, c in found
        ]
        answers += [await one for one in asked]
    assert [status for status, _ in found] == [200] * count
    session = onnxruntime.InferenceSession(str(tiny_models["heavy"]), providers=["CPUExecutionProvider"])
    for i, (y, _, _) in enumerate(answers):
        np.testing.assert_allclose(np.ravel(y), session.run(None, {"x": inputs(i)})[0][0], rtol=1e-3, atol=1e-4)
    assert max(rows for _, rows, _ in answers) > 2
    # The wait counts, wherever it was.
    assert max(queue_ms for *_, queue_ms in answers) > 500 * seconds_of(tiny_models["heavy"])
    assert counted(gateway, "nereus_gateway_grant_rows_sum") == 2 * count
    assert counted(gateway, "nereus_gateway_grant_rows_count") < 2 * count
    assert counted(gateway, "nereus_gateway_queries_total") == 2 * count
    assert counted(gateway, "nereus_gateway_held") == counted(gateway, "nereus_gateway_in_flight") == 0


async def test_a_burst_steps_down_in_accuracy_and_nobody_is_refused(world, tmp_path):
    slow_path, quick_path = turning(tmp_path / "slow.onnx", 100_000), turning(tmp_path / "quick.onnx", 1)
    world.models = {"slow": slow_path, "quick": quick_path}
    # Whatever the machine's pace is, the accurate variant has time for a third of so many queries.
    row_s = seconds_of(slow_path)
    slo_s = max(6.0, 10 * row_s)
    count, app = round(3 * slo_s / row_s), application("app", slo_s, WIDE)
    slow = resident(variant(1, slow_path, accuracy=99.9, name="slow"), row_s, max_batch=1)
    quick = resident(variant(2, quick_path, accuracy=80.0, name="quick"), 0.0005, max_batch=8)
    gateway = await world.start(1, slow, standby=[quick], app=app, NEREUS_QUEUE_ROWS=str(count))
    async with gateway.client() as http:
        calm = [await http.post(PATH, json=body()) for _ in range(3)]
    burst = await together(gateway, [body(i) for i in range(count)])
    assert {answer.json()["model_version"] for answer in calm} == {"slow"}
    statuses = collections.Counter(status for status, _ in burst)
    assert statuses[200] > 5 / 6 * count, statuses
    assert "quick" in {content.get("model_version") for _, content in burst}


@pytest.mark.parametrize("insists", [{"version": "heavy"}, {"min_accuracy": 95}])
async def test_constrained_queries_are_held_with_the_others_and_get_what_they_ask_for(world, insists):
    app = application("app", 60.0)
    gateway = await world.start(1, world.heavy, standby=[world.quick], app=app)
    path = f"/v2/models/app/versions/{insists['version']}/infer" if "version" in insists else PATH
    asked = body() | ({"parameters": insists} if "min_accuracy" in insists else {})
    async with gateway.client() as http:
        held = [http.post(PATH, json=body()) for _ in range(60)]
        constrained = [http.post(path, json=asked) for _ in range(6)]
        found = await asyncio.gather(*held, *constrained)
    assert {answer.status_code for answer in found} == {200}
    assert {answer.json()["model_version"] for answer in found[60:]} == {"heavy"}
    assert counted(gateway, "nereus_gateway_grant_rows_sum") == 66


async def test_an_application_that_goes_has_what_is_held_for_it_ended(world, control_plane, tmp_path):
    path = turning(tmp_path / "slow.onnx", 100_000)
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
    async with gateway.client() as http:
        wide = body()
        wide["inputs"][0] |= {"shape": [60, 4], "data": wide["inputs"][0]["data"][0] * 60}
        waiting = [asyncio.create_task(http.post(PATH, json=wide)) for _ in range(60)]
        await until(lambda: gateway.health()["held"] > 30 or any(w.done() for w in waiting), "queries are held")
        assert await asyncio.to_thread(gateway.stop) == 0
        found = await asyncio.gather(*waiting, return_exceptions=True)
    answered = collections.Counter(getattr(answer, "status_code", type(answer).__name__) for answer in found)
    assert answered[503] > 5 and set(answered) <= {200, 503}, answered
