"""Python calls of the gateway for a query.

This is a cost that no other load on the machine changes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import numpy as np

from tests.pressure.wire import answer, post
from workers.gateway.gateway import Gateway
from workers.gateway.options import GatewayOptions

from .conftest import AUTH, application, config, free_port, plan
from .test_failures import PATH

#: a query whose tensors are binary, as tritonclient sends it
HEADER = json.dumps(
    {
        "inputs": [
            {"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}},
        ],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
).encode()
BODY = HEADER + np.ones((1, 4), "<f4").tobytes()
HEADERS = {**AUTH, "Inference-Header-Content-Length": str(len(HEADER))}

#: Python calls in workers/ for a query over HTTP/1.1 by itself, from the bytes that are read to those that are written
CALLS = 135
WARM_UP, COUNTED = 100, 200
WORKERS = str(Path(__file__).resolve().parents[2] / "workers")


async def test_a_query_by_itself_costs_the_gateway_few_python_calls(tmp_path, devices):
    (device,) = devices("d0")
    device.warm(("numbers", "big"))
    port = free_port()
    gateway = Gateway(GatewayOptions("box", "127.0.0.1", port, "127.0.0.1", free_port(), tmp_path / "config.json"))
    await gateway.start()
    gateway.configure(config(plan(1, {"d0": [("numbers", "big")]}, {"d0": device.endpoint}), [application("numbers")]))
    async with asyncio.timeout(60):
        while not gateway.ready:
            await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(WORKERS):
            calls[f"{frame.f_code.co_filename.removeprefix(WORKERS)}:{frame.f_code.co_qualname}"] += 1

    try:
        for number in range(WARM_UP + COUNTED):
            if number == WARM_UP:
                sys.setprofile(count)
            writer.write(post(PATH, BODY, **HEADERS))
            status, _, body = await answer(reader)
            assert status == 200, body
    finally:
        sys.setprofile(None)
        writer.close()
        await gateway.stop(0.0)
    found = sum(calls.values()) / COUNTED
    assert found <= CALLS, f"{found:.1f} calls a query: {calls.most_common()}"
