"""A real executor behind a real gateway: its end, endless queries, and times of stages."""

from __future__ import annotations

import asyncio
import time

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from tests.executor.harness import WIDE, Executor, application, endless, resident, turning, variant
from workers.dispatch import stacks
from workers.protocol.specs import DevicePlan, PlanSpec, Route

from .conftest import AUTH, GatewayProcess, config, until

QUERIES = 6
#: rounds of queries within which a busy machine leaves one of them alone
ROUNDS = 20
STAGES = ("queue_ms", "network_ms", "batch_ms", "model_ms")


def plans(executor: Executor, version: int, *residents, stack: str = stacks.DEFAULT) -> PlanSpec:
    device = DevicePlan(executor.info.id, executor.endpoint, residents)
    return PlanSpec(version, (device,), (Route("app", executor.info.id, 1.0),), stack=stack)


def asked(gateway: GatewayProcess, protocol: str) -> dict:
    grpc = protocol == "grpc"
    triton = triton_grpc if grpc else triton_http
    tensor = triton.InferInput("x", [1, 4], "FP32").set_data_from_numpy(np.ones((1, 4), np.float32))
    headers = {name.lower(): value for name, value in AUTH.items()}
    wanted = [triton.InferRequestedOutput("y") if grpc else triton.InferRequestedOutput("y", protocol == "binary")]
    with triton.InferenceServerClient(gateway.grpc if grpc else f"127.0.0.1:{gateway.port}") as client:
        began = time.perf_counter()
        result = client.infer("app", [tensor], outputs=wanted, headers=headers)
        client_ms = (time.perf_counter() - began) * 1e3
        if grpc:
            found = {name: value.double_param for name, value in result.get_response().parameters.items()}
        else:
            found = result.get_response()["parameters"]
    return found | {"client_ms": client_ms}


@pytest.fixture(params=[1, 2])
def gateway(request, gateways, tmp_path):
    def start(made) -> GatewayProcess:
        if request.param == 1:
            return gateways(made)
        first = gateways(made, NEREUS_GATEWAYS="2")
        gateways(None, beside=first, number=2, NEREUS_GATEWAYS="2")
        return first

    return start


async def test_the_stages_add_up_to_the_latency(gateway, tmp_path):
    path = turning(tmp_path / "slow.onnx", 60_000)
    made, app = variant(1, path), application("app", 60.0)
    async with Executor(tmp_path) as executor:
        executor.apply(1, [resident(made, max_batch=1)], [app], [path])
        front = await asyncio.to_thread(gateway, config(plans(executor, 1, resident(made, max_batch=1)), [app]))
        await until(front.ready, "it is ready")
        for protocol in ("json", "binary", "grpc"):
            found = []
            for _ in range(ROUNDS):
                found += [await asyncio.to_thread(asked, front, protocol) for _ in range(QUERIES)]
                # Time between client and front is no stage, but it was short for some query.
                rest = min(one["client_ms"] - sum(one[name] for name in STAGES) for one in found)
                if rest < min(one["model_ms"] for one in found):
                    break
            else:
                raise AssertionError(f"{rest} ms of each query are in no stage")
            for one in found:
                assert all(one[name] >= 0 for name in STAGES)
                assert one["network_ms"] > 0 and one["model_ms"] > 0 and one["batch_ms"] > 0
                assert sum(one[name] for name in STAGES) <= one["client_ms"] + 0.01
        # Runs of one row follow each other: all but the first one wait, where clients send at the same time.
        for _ in range(ROUNDS):
            together = await asyncio.gather(*[asyncio.to_thread(asked, front, "grpc") for _ in range(QUERIES)])
            assert all(sum(one[name] for name in STAGES) <= one["client_ms"] + 0.01 for one in together)
            if max(one["queue_ms"] for one in together) > min(one["model_ms"] for one in together):
                break
        else:
            raise AssertionError("no query waited for another one")


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
