"""A real executor with real ONNX models behind a real gateway.

What the real clients make of it is in ``tests/wild``.
"""

from __future__ import annotations

import asyncio
import collections

import httpx2

from tests.executor.harness import WIDE, Executor, application, endless, resident, variant
from tools.waiting import eventually_async
from workers.protocol.specs import DevicePlan, PlanSpec, Route

from .conftest import AUTH, config, wait_for


def plans(executor: Executor, version: int, *residents) -> PlanSpec:
    device = DevicePlan(executor.info.id, executor.endpoint, residents)
    return PlanSpec(version, (device,), (Route("app", executor.info.id, 1.0),))


async def until(condition, what: str):
    return await asyncio.to_thread(wait_for, condition, what)


async def test_kill_9_under_load_hangs_no_query(gateways, tiny_models, tmp_path):
    made = variant(1, tiny_models["quick"], name="quick")
    app = application("app", 5.0)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    found: collections.Counter = collections.Counter()
    executor = Executor(tmp_path)
    await executor.__aenter__()
    executor.apply(1, [resident(made, max_batch=1)], [app], [tiny_models["quick"]])
    gateway = gateways(config(plans(executor, 1, resident(made, max_batch=1)), [app]))
    await until(gateway.ready, "the gateway is ready")
    stop = asyncio.Event()

    async def client(http: httpx2.AsyncClient) -> None:
        while not stop.is_set():
            response = await http.post("/v2/models/app/infer", json=body)
            assert response.status_code in (200, 503, 504), response.text
            if response.status_code == 503:
                assert int(response.headers["Retry-After"]) >= 1
            found[response.status_code] += 1
            await asyncio.sleep(0 if response.status_code == 200 else 0.01)

    async with httpx2.AsyncClient(base_url=gateway.url, headers=AUTH, timeout=60, verify=False) as http:
        clients = [asyncio.create_task(client(http)) for _ in range(8)]
        await eventually_async(lambda: found[200] >= 20)
        executor.process.kill()
        await executor.ended()
        await executor.__aexit__()
        served = found[200]
        async with Executor(tmp_path) as again:
            again.apply(1, [resident(made, max_batch=1)], [app], [tiny_models["quick"]])
            await eventually_async(lambda: found[200] >= served + 20 or any(one.done() for one in clients))
            assert not any(one.done() for one in clients)
            stop.set()
            await asyncio.gather(*clients)
    assert found[503] > 0
    health = gateway.health()
    assert health["in_flight"] == 0


async def test_a_new_variant_takes_over_without_a_failure(gateways, control_plane, tiny_models, tmp_path):
    """The executor keeps the old variant until the gateway has moved."""
    old, new = (variant(i, tiny_models[n], name=n) for i, n in ((1, "quick"), (2, "medium")))
    app = application("app", 60.0)
    async with Executor(tmp_path) as executor:
        executor.apply(1, [resident(old, max_batch=1)], [app], [tiny_models["quick"]])
        control_plane.first = config(plans(executor, 1, resident(old, max_batch=1)), [app])
        gateway = gateways(None, NEREUS_CONTROL_URL=control_plane.url, NEREUS_JOIN_TOKEN="t")
        await until(gateway.ready, "the gateway is ready")
        versions: collections.Counter = collections.Counter()
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
        async with httpx2.AsyncClient(base_url=gateway.url, headers=AUTH, timeout=60, verify=False) as http:
            async with asyncio.timeout(120):
                while versions["medium"] < 20:
                    response = await http.post("/v2/models/app/infer", json=body)
                    assert response.status_code == 200, response.text
                    versions[response.json()["model_version"]] += 1
                    if versions["quick"] == 10:
                        control_plane.send(config(plans(executor, 2, resident(new, max_batch=1)), [app]))
                        executor.apply(2, [resident(new, max_batch=1)], [app], list(tiny_models.values()))
        assert versions["quick"] >= 10
        assert gateway.health()["plan"] == {"adopted": 2, "newest": 2}


async def test_an_endless_query_fails_and_the_device_serves_on(gateways, tmp_path):
    """An endless query fails, and the only device serves on.

    Ordinary queries are answered again as soon as the watchdog has stopped the run.
    """
    path = endless(tmp_path / "endless.onnx")
    made = variant(1, path, name="endless")
    app = application("app", 0.2, WIDE, late="serve")
    async with Executor(tmp_path) as executor:
        executor.apply(1, [resident(made, 0.001)], [app], [path])
        gateway = gateways(config(plans(executor, 1, resident(made, 0.001)), [app]))
        await until(gateway.ready, "the gateway is ready")

        def ask(value: float) -> httpx2.Response:
            tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [value] * 4}
            return gateway.post("/v2/models/app/infer", {"inputs": [tensor]})

        for value in (100.0, 200.0):
            response = await asyncio.to_thread(ask, value)
            while response.status_code == 504:
                # The watchdog counts what the run could compute; on a busy machine the gateway waits no longer.
                value += 1.0
                response = await asyncio.to_thread(ask, value)
            assert response.status_code == 500, response.text
            assert "endless: the run did not end within 2 s and was stopped; it is not tried again" in response.text
            assert "Retry-After" not in response.headers
            assert (await asyncio.to_thread(ask, 1.0)).status_code == 200
        again = await asyncio.to_thread(ask, value)
        assert again.status_code == 500 and "it is refused for another" in again.text
        assert gateway.health()["in_flight"] == 0
