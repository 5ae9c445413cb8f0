"""Clients that go away in the middle leave nothing behind.

They go in the middle of a request, of an answer or of a batch.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap

import grpc.aio
import numpy as np
import onnxruntime
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.gateway.conftest import KEY, wait_for
from tests.gateway.test_late_binding import counted
from tools.waiting import eventually_async

from .conftest import COLUMNS
from .wire import Client, answer, request

WAYS = pytest.mark.parametrize("reset", [False, True], ids=["closing", "reset"])


@WAYS
@pytest.mark.parametrize("sent", [10, 150, 10_000])
def test_in_mid_request(served, numbers, sent, reset):
    with served.bystanders():
        for _ in range(30):
            client = Client(served.gateway.port)
            client.send(request("large", numbers)[:sent])
            client.vanish(reset)


@WAYS
def test_in_mid_response(served, reset):
    x = np.zeros((64, COLUMNS), np.float32)
    before = counted(served.gateway, "nereus_gateway_queries_total")
    with served.bystanders():
        for _ in range(10):
            client = Client(served.gateway.port, receive_bytes=4096)
            client.send(request("large", x))
            assert client.socket.recv(1024).startswith(b"HTTP/1.1 200 OK")
            client.vanish(reset)
    assert counted(served.gateway, "nereus_gateway_queries_total") > before


def test_with_answers_of_a_pipeline_still_to_come(served, numbers):
    with served.bystanders():
        for _ in range(10):
            client = Client(served.gateway.port, receive_bytes=4096)
            client.send(request("large", numbers) * 20)
            assert client.socket.recv(1024).startswith(b"HTTP/1.1 200 OK")
            client.vanish(reset=True)


def test_a_process_that_is_killed_with_calls_of_both_kinds_under_way(served):
    asked = request("slow", np.ones((1, 4), np.float32))
    code = f"""
    import socket, sys, time
    import grpc
    from tritonclient.grpc import service_pb2 as pb
    channel = grpc.insecure_channel({served.gateway.grpc!r})
    infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    message = pb.ModelInferRequest(model_name="slow", raw_input_contents=[bytes(16)],
        inputs=[dict(name="x", datatype="FP32", shape=[1, 4])]).SerializeToString()
    calls = [infer.future(message, metadata=(("authorization", "Bearer {KEY}"),)) for _ in range(60)]
    sockets = [socket.create_connection(("127.0.0.1", {served.gateway.port})) for _ in range(60)]
    for one in sockets:
        one.sendall({asked!r})
    print("sent", flush=True)
    time.sleep(600)
    """
    with served.bystanders():
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"sent\n"
        # More than there are of either kind, and so few that many may have been answered already.
        wait_for(lambda: served.gateway.health()["in_flight"] > 64, "many are under way")
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        wait_for(served.idle, "all are forgotten")


@WAYS
async def test_one_of_a_batch_leaves_it_to_the_others(served, reset):
    """One caller of a batch that goes away leaves the batch to the others.

    Everything is real from end to end: one goes while the batch runs, and each of the others gets its own answer, over
    HTTP and gRPC.
    """
    random = np.random.default_rng(5)
    inputs = random.uniform(0.1, 0.4, (9, 1, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(served.models["slow"]), providers=["CPUExecutionProvider"])
    # The first one's run is what the rest gathers behind.
    first = asyncio.create_task(_ask(served, inputs[0]))
    await _until(lambda: first.done() or served.gateway.health()["in_flight"] >= 1)
    async with grpc.aio.insecure_channel(served.gateway.grpc) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        others = [asyncio.create_task(_ask(served, x)) for x in inputs[1:5]]
        calls = [infer(_message(x), metadata=(("authorization", f"Bearer {KEY}"),)) for x in inputs[5:8]]
        leaving = Client(served.gateway.port)
        leaving.send(request("slow", inputs[8]))
        gone = infer(_message(inputs[8]), metadata=(("authorization", f"Bearer {KEY}"),))
        status, _, content = await first
        np.testing.assert_allclose(np.frombuffer(content, np.float32), session.run(None, {"x": inputs[0]})[0][0], 1e-4)
        # Its batch is answered, so theirs runs now.
        await _until(lambda: served.gateway.health()["held"] == 0)
        leaving.vanish(reset)
        gone.cancel()
        answers = [(await one)[2] for one in others]
        answers += [pb.ModelInferResponse.FromString(await one).raw_output_contents[0] for one in calls]
    assert status == 200
    for x, content in zip(inputs[1:8], answers, strict=True):
        np.testing.assert_allclose(np.frombuffer(content, np.float32), session.run(None, {"x": x})[0][0], 1e-4)


def _message(x: np.ndarray) -> bytes:
    return pb.ModelInferRequest(
        model_name="slow",
        inputs=[{"name": "x", "datatype": "FP32", "shape": list(x.shape)}],
        raw_input_contents=[x.tobytes()],
    ).SerializeToString()


async def _ask(served, x: np.ndarray) -> tuple[int, dict, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.port)
    writer.write(request("slow", x))
    try:
        return await answer(reader)
    finally:
        writer.close()


async def _until(condition) -> None:
    await eventually_async(lambda: asyncio.to_thread(condition))
