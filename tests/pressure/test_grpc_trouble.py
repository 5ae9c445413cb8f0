"""Trouble over gRPC beside others who notice nothing."""

from __future__ import annotations

import contextlib
import gzip
import threading
import time
import zlib

import grpc
import numpy as np
import onnxruntime
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.gateway.conftest import wait_for
from tests.gateway.test_grpc_errors import CODE, KEYED, SERVICE
from tests.net import wire as h2
from tests.net.http2_client import HEAD, Peer, connected, prefixed
from workers.net.limits import GrpcLimits

from .conftest import COLUMNS, MAX_REQUEST_MB, MIB
from .wire import message

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


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
    """A stream asked as fast as it is taken, and the queries that were taken."""
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


# --- without a key ----------------------------------------------------------------------------------------------------

GRPC_LIMITS = GrpcLimits(message_bytes=MIB, buffered_bytes=MIB)
LIVE = [(name, SERVICE + "ServerLive" if name == ":path" else value) for name, value in HEAD]


async def status(peer: Peer, number: int) -> grpc.StatusCode:
    _, fields = await peer.response(number)
    return next(code for code in CODE if code.value[0] == int(fields[b"grpc-status"]))


def address(served) -> int:
    return int(served.gateway.grpc.rpartition(":")[2])


async def test_gzip_calls_of_open_methods_are_refused_without_being_inflated(served):
    bomb, count = gzip.compress(bytes(MAX_REQUEST_MB * MIB - 1)), 200
    begun = time.process_time()
    for _ in range(count // 10):
        gzip.decompress(bomb)
    inflating_s = 10 * (time.process_time() - begun)
    process = served.processes["gateway"]
    async with connected(address(served)) as peer:
        fields = [*LIVE, ("grpc-encoding", "gzip")]
        begun = sum(process.cpu_times()[:2])
        for number in range(1, 2 * count, 2):
            pieces = [
                prefixed(bomb, 1)[place : place + h2.DEFAULT_FRAME]
                for place in range(0, len(bomb) + 5, h2.DEFAULT_FRAME)
            ]
            frames = [h2.frame(h2.DATA, 0, number, piece) for piece in pieces[:-1]]
            peer.send(peer.head(number, fields=fields), *frames, h2.frame(h2.DATA, h2.END_STREAM, number, pieces[-1]))
            assert await status(peer, number) in (CODE.UNIMPLEMENTED, CODE.RESOURCE_EXHAUSTED)
        assert sum(process.cpu_times()[:2]) - begun < inflating_s / 2


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_small_compressed_message_of_an_open_method_is_not_taken_either(served, encoding):
    packed = gzip.compress(b"", mtime=0) if encoding == "gzip" else zlib.compress(b"")
    async with connected(address(served)) as peer:
        fields = [*LIVE, ("grpc-encoding", encoding)]
        peer.send(peer.head(1, fields=fields), h2.frame(h2.DATA, h2.END_STREAM, 1, prefixed(packed, 1)))
        assert await status(peer, 1) is CODE.UNIMPLEMENTED
        # A plain message is taken: some clients compress only where that saves bytes.
        peer.ask(3, b"", fields)
        assert await status(peer, 3) is CODE.OK


async def test_a_message_of_an_open_method_has_few_bytes(served):
    async with connected(address(served)) as peer:
        for number, size in ((1, GRPC_LIMITS.public_message_bytes), (3, GRPC_LIMITS.public_message_bytes + 1)):
            # A field that nobody knows, of so many bytes in all.
            peer.ask(number, b"\x7a" + bytes([size - 2]) + bytes(size - 2), LIVE)
            assert await status(peer, number) is (CODE.OK if number == 1 else CODE.RESOURCE_EXHAUSTED)
        # One that is too long is refused by its length.
        peer.send(peer.head(5, fields=LIVE), h2.frame(h2.DATA, 0, 5, prefixed(bytes(1000))[:10]))
        assert await status(peer, 5) is CODE.RESOURCE_EXHAUSTED


@pytest.mark.wide
async def test_open_calls_of_20_connections_leave_the_slots_for_calls_with_a_key(served):
    connections = GRPC_LIMITS.calls // GRPC_LIMITS.http2.streams + 1
    async with contextlib.AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(connected(address(served))) for _ in range(connections)]
        for peer in peers:
            peer.send(*[peer.head(number, fields=LIVE) for number in range(1, 2 * GRPC_LIMITS.http2.streams, 2)])
            peer.send(h2.frame(h2.PING, 0, 0, b"all read"))
        for peer in peers:
            await peer.until(h2.PING)
        with served.bystanders(http=1, grpc=3), grpc.insecure_channel(served.gateway.grpc) as channel:
            # Nor have those who ask whether it lives to wait for one.
            for _ in range(5):
                live = channel.unary_unary(SERVICE + "ServerLive")
                assert pb.ServerLiveResponse.FromString(live(b"", timeout=60)).live
