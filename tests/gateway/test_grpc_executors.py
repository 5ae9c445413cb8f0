"""Queries over gRPC and HTTP share the batches of real executors.

Each gets its own answer.
"""

from __future__ import annotations

import asyncio
import contextlib

import httpx2
import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc.aio as triton

from tests.executor.harness import application

from .conftest import AUTH
from .test_grpc_errors import KEYED
from .test_late_binding import PATH, World, counted

EACH = 40


@pytest.fixture
async def world(gateways, tiny_models, tmp_path):
    made = World(gateways, tiny_models, tmp_path)
    async with made.stack:
        yield made


async def test_each_query_gets_what_the_model_says_of_it(world, tiny_models):
    gateway = await world.start(2, world.heavy)
    session = onnxruntime.InferenceSession(str(tiny_models["heavy"]), providers=["CPUExecutionProvider"])
    data = np.random.default_rng(1).normal(size=(2 * EACH, 1, 4)).astype(np.float32)
    batches = []

    async def over_grpc(client: triton.InferenceServerClient, x: np.ndarray) -> np.ndarray:
        tensor = triton.InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(x)
        result = await client.infer("app", [tensor], headers=dict(KEYED))
        batches.append(result.get_response().parameters["batch_size"].int64_param)
        return result.as_numpy("y")

    async def over_http(client: httpx2.AsyncClient, x: np.ndarray) -> np.ndarray:
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": x.tolist()}]}
        answer = (await client.post(gateway.url + PATH, json=body)).json()
        return np.array(answer["outputs"][0]["data"], np.float32).reshape(answer["outputs"][0]["shape"])

    async with contextlib.AsyncExitStack() as stack:
        grpc = await stack.enter_async_context(triton.InferenceServerClient(gateway.grpc))
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=AUTH, timeout=120, verify=False))
        answers = await asyncio.gather(
            *(over_grpc(grpc, x) for x in data[:EACH]), *(over_http(http, x) for x in data[EACH:])
        )
    for x, y in zip(data, answers, strict=True):
        np.testing.assert_allclose(y, session.run(None, {"x": x})[0], rtol=1e-3, atol=1e-5)
    assert max(batches) > 1
    assert counted(gateway, "nereus_gateway_queries_total") == 2 * EACH
    assert counted(gateway, "nereus_gateway_in_flight") == 0


async def test_a_query_that_names_its_variant_gets_it(world):
    gateway = await world.start(1, world.heavy, world.quick, app=application("app", 2.0, late="serve"))
    tensor = triton.InferInput("x", [3, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((3, 4), np.float32))
    async with triton.InferenceServerClient(gateway.grpc) as client:
        for name, accuracy in (("heavy", 99.0), ("quick", 80.0)):
            response = (await client.infer("app", [tensor], name, headers=dict(KEYED))).get_response()
            assert (response.model_version, response.parameters["accuracy"].double_param) == (name, accuracy)
        wanted = {"min_accuracy": 90}
        response = (await client.infer("app", [tensor], parameters=wanted, headers=dict(KEYED))).get_response()
        assert response.model_version == "heavy"
