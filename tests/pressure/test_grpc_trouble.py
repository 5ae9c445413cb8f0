"""Trouble over gRPC beside others who notice nothing."""

from __future__ import annotations

import threading
import time

import grpc
import numpy as np
import onnxruntime
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.gateway.conftest import wait_for
from tests.gateway.test_grpc_errors import CODE, KEYED, SERVICE

from .conftest import COLUMNS, MAX_REQUEST_MB, MIB

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: frames of HTTP/2: length (24 bits), type, flags, stream (RFC 9113, section 4.1)
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def message(application: str, x: np.ndarray) -> bytes:
    return pb.ModelInferRequest(
        model_name=application,
        inputs=[{"name": "x", "datatype": "FP32", "shape": list(x.shape)}],
        raw_input_contents=[x.tobytes()],
    ).SerializeToString()


def test_messages_that_are_too_large_are_refused_one_by_one(served):
    too_large = message("large", np.zeros((MAX_REQUEST_MB * MIB // (4 * COLUMNS) + 1, COLUMNS), np.float32))
    before = served.rss("gateway")
    with served.bystanders(), grpc.insecure_channel(served.gateway.grpc, UNLIMITED) as channel:
        infer = channel.unary_unary(SERVICE + "ModelInfer")
        for _ in range(5):
            with pytest.raises(grpc.RpcError) as caught:
                infer(too_large, metadata=KEYED, timeout=60)
            assert caught.value.code() is CODE.RESOURCE_EXHAUSTED
        # Nor is the connection spoilt by it.
        x = np.ones((2, COLUMNS), np.float32)
        response = pb.ModelInferResponse.FromString(infer(message("large", x), metadata=KEYED, timeout=60))
        assert response.raw_output_contents[0] == (-x).tobytes()
    assert served.rss("gateway") - before < 64 * MIB


def test_many_calls_that_are_cancelled_at_once(served):
    x = np.ones((1, 4), np.float32)
    (right,) = onnxruntime.InferenceSession(str(served.models["slow"])).run(None, {"x": x})
    asked, cancelled = message("slow", x), 0
    with served.bystanders(least=60), grpc.insecure_channel(served.gateway.grpc) as channel:
        infer = channel.unary_unary(SERVICE + "ModelInfer")
        while cancelled < 500:
            calls = [infer.future(asked, metadata=KEYED) for _ in range(100)]
            for call in calls:
                call.cancel()
            # Some may have been answered before they were cancelled; there is no third outcome.
            assert {call.code() for call in calls} <= {CODE.CANCELLED, CODE.OK}
            cancelled += sum(call.cancelled() for call in calls)
            for call in calls:
                if not call.cancelled():
                    (output,) = pb.ModelInferResponse.FromString(call.result()).raw_output_contents
                    assert np.allclose(np.frombuffer(output, np.float32), right.ravel(), 1e-4, 1e-5)
        wait_for(served.idle, "all are forgotten")


def large_stream(channel: grpc.Channel, x: np.ndarray, count: int, over: threading.Event | None = None):
    """Open a stream of queries that are asked as fast as they are taken.

    Returns:
        The call, and the list of the queries that were taken.
    """
    asked, sent = message("large", x), []

    def much():
        while len(sent) < count and not (over is not None and over.is_set()):
            sent.append(1)
            yield asked

    return channel.stream_stream(SERVICE + "ModelStreamInfer")(much(), metadata=KEYED), sent


def _settled(sent: list, still_s: float = 0.7) -> None:
    """Wait until nothing more is taken from a stream's client."""
    count, since = len(sent), time.monotonic()
    while time.monotonic() - since < still_s:
        if len(sent) != count:
            count, since = len(sent), time.monotonic()
        time.sleep(0.02)


def test_who_streams_much_and_reads_nothing_is_not_given_the_gateways_memory(served):
    """The gateway holds few of 600 MB of answers that nobody reads."""
    x = np.random.default_rng(3).standard_normal((48, COLUMNS), dtype=np.float32)
    over, before = threading.Event(), served.rss("gateway")
    with served.bystanders(least=60), grpc.insecure_channel(served.gateway.grpc, UNLIMITED) as channel:
        stream, sent = large_stream(channel, x, 200, over)
        next(stream)
        _settled(sent)
        held, taken = served.rss("gateway") - before, len(sent)
        over.set()
        # It is given all that it asked for, once it reads.
        answers = [pb.ModelStreamInferResponse.FromString(one).infer_response for one in stream]
    assert all(one.raw_output_contents[0] == (-x).tobytes() for one in answers)
    assert len(answers) == len(sent) - 1
    assert taken < 200
    assert held < 200 * MIB


def test_a_stream_that_goes_away_with_answers_unread_is_no_error_of_the_gateway(stack):
    logged = len(stack.errors())
    with stack.bystanders(), grpc.insecure_channel(stack.gateway.grpc, UNLIMITED) as channel:
        stream, sent = large_stream(channel, np.ones((48, COLUMNS), np.float32), 100)
        next(stream)
        _settled(sent)
        assert len(sent) < 100
        wait_for(stack.idle, "all that were read are answered, and few of the answers were taken")
        stream.cancel()
        wait_for(stack.idle, "its queries are forgotten")
    # The line is written when the library gives up.
    time.sleep(0.5)
    assert stack.errors()[logged:] == []
