"""Python calls of the gateway for a query by itself, in steady state.

Functions and files are counted, too. No other load on the machine changes this cost. The numbers may only fall.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np
import pytest
import tritonclient.grpc.aio as triton

from tests.pressure.wire import answer, post

from .conftest import AUTH, KEY, fronts, one_device
from .test_failures import PATH


class Cost(NamedTuple):
    calls: int
    functions: int
    files: int


#: of a query, from the bytes that are read to those that are written, in workers/
MOST = {"http": Cost(136, 121, 34), "http, binary": Cost(95, 85, 30), "grpc": Cost(144, 123, 37)}
WARM_UP, COUNTED = 100, 200
WORKERS = str(Path(__file__).resolve().parents[2] / "workers")

X = np.ones((1, 4), "<f4")
TENSOR = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
JSON = json.dumps({"inputs": [{**TENSOR, "data": X.ravel().tolist()}], "outputs": [{"name": "y"}]}).encode()
#: as tritonclient sends it
HEADER = json.dumps(
    {
        "inputs": [{**TENSOR, "parameters": {"binary_data_size": X.nbytes}}],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
).encode()
REQUESTS = {
    "http": post(PATH, JSON, **AUTH),
    "http, binary": post(PATH, HEADER + X.tobytes(), **{**AUTH, "Inference-Header-Content-Length": str(len(HEADER))}),
}


async def over_http(port: int, request: bytes):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            writer.write(request)
            status, _, body = await answer(reader)
            assert status == 200, body
            yield
    finally:
        writer.close()


async def over_grpc(port: int):
    tensor = triton.InferInput("x", [1, 4], "FP32").set_data_from_numpy(X)
    async with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        while True:
            await client.infer("numbers", [tensor], headers={"authorization": f"Bearer {KEY}"})
            yield


@pytest.mark.parametrize("protocol", MOST)
async def test_a_query_by_itself_costs_the_gateway_few_python_calls(protocol, tmp_path, devices):
    _, given = one_device(devices)
    calls: Counter[tuple[str, str]] = Counter()
    counted = []

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(WORKERS):
            calls[frame.f_code.co_filename.removeprefix(WORKERS), frame.f_code.co_qualname] += 1

    async with fronts(tmp_path, given) as (_, port, grpc_port):
        queries = over_grpc(grpc_port) if protocol == "grpc" else over_http(port, REQUESTS[protocol])
        async with contextlib.aclosing(queries):
            for _ in range(WARM_UP):
                await anext(queries)
            sys.setprofile(count)
            try:
                for _ in range(COUNTED):
                    calls.clear()
                    await anext(queries)
                    counted.append(calls.copy())
            finally:
                sys.setprofile(None)
    # Undisturbed ones: some pay for a look at the demand, or on a busy machine for a timer that came first.
    usual = sorted(counted, key=Counter.total)[COUNTED // 10]
    cost = Cost(usual.total(), len(usual), len({file for file, _ in usual}))
    parts = Counter()
    for (file, _), number in usual.items():
        parts[file.split("/")[1]] += number
    told = "\n".join(f"{number} {file}:{function}" for (file, function), number in sorted(usual.items()))
    assert all(now <= most for now, most in zip(cost, MOST[protocol], strict=True)), f"{cost}, {parts}\n{told}"
