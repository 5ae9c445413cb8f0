"""Clients without a key.

Bodies that they may not send are refused at the head, and hold nothing that others need.
"""

from __future__ import annotations

import contextlib
import gzip
import time
import zlib
from contextlib import ExitStack

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.gateway.conftest import wait_for
from tests.gateway.test_grpc_errors import CODE, KEYED, SERVICE
from tests.net import wire as h2
from tests.net.http2_client import HEAD, Peer, connected, prefixed
from workers.net.limits import GrpcLimits

from .conftest import MAX_REQUEST_MB, MIB
from .test_slow_clients import LARGEST
from .wire import Client, request

GRPC_LIMITS = GrpcLimits(message_bytes=MIB, buffered_bytes=MIB)

LIVE = [(name, SERVICE + "ServerLive" if name == ":path" else value) for name, value in HEAD]


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: a", *lines]).encode() + b"\r\n\r\n"


# --- HTTP -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v2/health/live", "/v2/health/ready"])
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("content-length: 65", 413),
        (f"content-length: {MAX_REQUEST_MB * MIB}", 413),
        ("content-length: 9999999999999999", 413),
        ("transfer-encoding: chunked", 400),
        ("content-encoding: gzip\r\ncontent-length: 20", 400),
    ],
)
def test_bodies_where_none_is_of_use_are_refused_at_the_head(served, path, line, status):
    with Client(served.gateway.port) as client:
        # Nothing of the body is sent: the answer comes without it.
        client.send(head("GET", path, line))
        found, headers, _ = client.answer()
        assert (found, headers["connection"]) == (status, "close")


@pytest.mark.parametrize("size", [0, 2])
def test_a_body_of_no_size_to_speak_of_is_let_pass(served, size):
    with Client(served.gateway.port) as client:
        for _ in range(3):
            client.send(head("GET", "/v2/health/live", f"content-length: {size}") + b"{}"[:size])
            assert client.answer()[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v2/models/large/infer", 401),
        ("POST", "/v2/repository/index", 401),
        ("POST", "/v2/what", 401),
        ("POST", "/what", 404),
        ("POST", "/health", 405),
    ],
)
@pytest.mark.parametrize("line", [f"content-length: {MAX_REQUEST_MB * MIB}", "transfer-encoding: chunked"])
def test_requests_that_are_refused_without_a_key_are_refused_before_their_bodies(served, method, path, status, line):
    with Client(served.gateway.port) as client:
        client.send(head(method, path, line))
        assert client.answer()[0] == status


def test_bodies_on_open_paths_leave_the_buffer_to_others(served):
    body = bytes(MAX_REQUEST_MB * MIB - 1)
    before = served.rss("gateway")
    with ExitStack() as stack:
        for _ in range(18):
            client = stack.enter_context(Client(served.gateway.port))
            with contextlib.suppress(ConnectionError):
                client.send(head("GET", "/health", f"content-length: {len(body) + 1}") + body)
        assert served.rss("gateway") - before < 64 * MIB
        with served.bystanders(), Client(served.gateway.port) as honest:
            honest.send(request("large", LARGEST, **{"x-new": "a head not seen before"}))
            assert honest.answer()[0] == 200


# --- gRPC -------------------------------------------------------------------------------------------------------------


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


async def test_calls_that_are_refused_at_their_head_hold_nothing(served):
    unknown = [(name, SERVICE + "What" if name == ":path" else value) for name, value in HEAD]
    keyless = [(name, SERVICE + "ModelInfer" if name == ":path" else value) for name, value in HEAD]
    async with connected(address(served)) as peer:
        for number, (fields, code) in enumerate(
            [
                (keyless, CODE.UNAUTHENTICATED),
                ([*keyless, ("authorization", "Bearer what")], CODE.UNAUTHENTICATED),
                (unknown, CODE.UNAUTHENTICATED),
                ([*unknown, *KEYED], CODE.UNIMPLEMENTED),
            ]
        ):
            peer.send(peer.head(2 * number + 1, fields=fields))
            # No message was sent.
            assert await status(peer, 2 * number + 1) is code


# --- offers to upgrade ------------------------------------------------------------------------------------------------

#: as Java's java.net.http.HttpClient sends it with each request to an http URL
OFFER = (
    "Connection: Upgrade, HTTP2-Settings",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    "Upgrade: h2c",
    "User-Agent: Java-http-client/17.0.9",
)


@pytest.mark.parametrize("pieces", ["whole", "head and body", "byte by byte"])
@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "in chunks"])
def test_java_s_offer_of_h2c_is_ignored_and_its_body_read(served, numbers, pieces, chunked):
    application, x = ("app", numbers[:1, :4].copy()) if pieces == "byte by byte" else ("large", numbers)
    begun, _, body = request(application, x).partition(b"\r\n\r\n")
    lines = [line for line in begun.split(b"\r\n") if not (chunked and line.startswith(b"content-length"))]
    lines += [line.encode() for line in OFFER]
    if chunked:
        lines.append(b"Transfer-encoding: chunked")
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:10], body[10:])) + b"0\r\n\r\n"
    begun = b"\r\n".join(lines) + b"\r\n\r\n"
    with Client(served.gateway.port) as client:
        for _ in range(3):
            if pieces == "whole":
                client.send(begun + body)
            elif pieces == "head and body":
                client.send(begun)
                wait_for(lambda: not client.untaken(), "the head is read")
                client.send(body)
            else:
                for one in begun + body:
                    client.send(bytes([one]))
            found, headers, content = client.answer()
            assert (found, "connection" in headers) == (200, False)
            assert application == "app" or content == (-x).tobytes()
        # Without a body, and with others behind it.
        client.send((head("GET", "/v2/health/live", *OFFER) + begun + body) * 2 + head("GET", "/v2/health/live"))
        assert [client.answer()[0] for _ in range(5)] == [200] * 5
