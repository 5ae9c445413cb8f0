"""A real executor with real ONNX models behind a real gateway.

What the real clients make of it is in ``tests/wild``.
"""

from __future__ import annotations

import asyncio

import httpx2

from tests.executor.harness import WIDE, Executor, application, endless, resident, variant
from workers.protocol.specs import DevicePlan, PlanSpec, Route

from .conftest import config, until


def plans(executor: Executor, version: int, *residents) -> PlanSpec:
    device = DevicePlan(executor.info.id, executor.endpoint, residents)
    return PlanSpec(version, (device,), (Route("app", executor.info.id, 1.0),))


async def test_an_endless_query_fails_and_the_device_serves_on(gateways, tmp_path):
    # Ordinary queries are answered again as soon as the watchdog has stopped the run.
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
