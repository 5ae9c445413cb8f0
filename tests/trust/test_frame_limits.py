"""Frames from members on other boxes are bounded by what these are, over real TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.executor.harness import Executor
from tools.waiting import eventually_async
from workers.executor.answers import GroupAnswer
from workers.executor.replies import split_large
from workers.protocol.frame_connection import FrameConnection, encode
from workers.protocol.frame_limits import (
    GREETING,
    LEAST_ANSWER_BYTES,
    SEVERAL_BYTES,
    FrameLimits,
    PeerLimits,
    QueryLimits,
)
from workers.protocol.frames import AskLease, Cluster, FromExecutor, Hello, ResultTensor, ToExecutor
from workers.protocol.framing import PREFIX, VERSION, FrameError, Framing
from workers.trust import endpoints
from workers.trust.authority import Authority
from workers.trust.endpoints import Endpoint, MemberListener, TlsClient, connect
from workers.trust.member import MemberIdentity, PeerIdentity

from .worlds import NOW, member

MIB = 1024 * 1024
LIMITS = PeerLimits(FrameLimits(4096, 1 * MIB), FrameLimits(4096, 2 * MIB))


def prefix(header: int, body: int) -> bytes:
    return PREFIX.pack(b"NR", VERSION, 0, header, body)


@given(
    st.integers(0, 300_000), st.integers(0, 300_000), st.integers(0, 300_000), st.integers(0, 300_000), st.integers(1)
)
def test_a_frame_passes_exactly_if_it_is_within_the_limits(header, body, most_header, most_body, piece):
    framing = Framing()
    framing.limit(most_header, most_body)
    left, found = memoryview(prefix(header, body) + bytes(header + body)), []
    try:
        while left:
            space = framing.space()
            count = min(len(space), len(left), piece)
            space[:count] = left[:count]
            found += framing.filled(count)
            left = left[count:]
            if count < 16 and len(left) > 1000:
                piece = 65_536
    except FrameError:
        assert header > most_header or body > most_body
    else:
        assert header <= most_header and body <= most_body and len(found) == 1


def test_limits_follow_from_the_settings():
    small, large = QueryLimits(80 * MIB, 8 * MIB), QueryLimits(1024 * MIB, 8 * MIB)
    assert small.queries.body == 80 * MIB and QueryLimits(MIB, MIB).queries.body == SEVERAL_BYTES
    assert QueryLimits(MIB, 100 * MIB).queries.body == 400 * MIB, "small numbers grow when they are packed"
    assert small.answers.body == 320 * MIB and QueryLimits(MIB, MIB).answers.body == LEAST_ANSWER_BYTES
    assert large.asking == PeerLimits(large.answers, large.queries)
    assert large.answering == PeerLimits(large.queries, large.answers)


class Ends:
    def __init__(self, folder) -> None:
        authority = Authority.make()
        self.node = member(authority, folder / "node.pem", "node", "far", NOW)
        self.gateway = member(authority, folder / "gateway.pem", "gateway", "box-gateway", NOW)
        self.received: list[int] = []
        self.ended: asyncio.Queue[Exception | None] = asyncio.Queue()

    def connection(self, kind=FrameConnection, **named) -> FrameConnection:
        def received(connection, message, body) -> None:
            if isinstance(message, Hello):
                connection.check_hello(message, "gateway")
                connection.peer = message
            self.received.append(len(body))

        return kind(ToExecutor, received, lambda _, error: self.ended.put_nowait(error), **named)

    @contextlib.asynccontextmanager
    async def listening(self):
        bound = socket.create_server(("127.0.0.1", 0))
        listener = MemberListener(bound, self.connection, lambda _: True, LIMITS)
        await listener.use(self.node.pem)
        yield bound.getsockname()[1]
        listener.close()


@pytest.fixture
def ends(tmp_path) -> Ends:
    return Ends(tmp_path)


@contextlib.asynccontextmanager
async def raw(identity: MemberIdentity, port: int):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=identity.client_context())
    yield reader, writer
    writer.transport.abort()


def hello() -> bytes:
    return b"".join(bytes(part) for part in encode(Hello("gateway", "box-gateway"), ()))


async def cut(ends: Ends) -> str:
    error = await asyncio.wait_for(ends.ended.get(), 60)
    assert isinstance(error, FrameError), error
    return str(error)


@pytest.mark.parametrize("sent", [prefix(GREETING.header + 1, 0), prefix(10, 1), prefix(10, 1) + bytes(11)])
async def test_before_its_hello_a_member_may_send_a_small_frame_alone(ends, sent):
    async with ends.listening() as port, raw(ends.gateway, port) as (_, writer):
        writer.write(sent)
        assert "frame too large" in await cut(ends)
    assert ends.received == []


async def test_after_its_hello_a_member_may_send_as_much_as_its_role_needs(ends):
    frame = msgspec.msgpack.encode(AskLease(1, True, False))
    async with ends.listening() as port, raw(ends.gateway, port) as (_, writer):
        # In one piece with its Hello, too.
        writer.write(hello() + prefix(len(frame), MIB) + frame + bytes(MIB))
        writer.write(prefix(len(frame), MIB + 1))
        assert f"body {MIB + 1} bytes; at most 4096 and {MIB}" in await cut(ends)
    assert ends.received == [0, MIB]


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1", b"PRI * HTTP/2.0"])
async def test_http_without_tls_is_told_whom_the_port_is_for(ends, request_line):
    async with ends.listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_line + b"\r\nhost: box\r\n\r\n")
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 400 ") and endpoints.MEMBERS_ALONE.encode() in told
        writer.close()
    assert ends.received == []


async def test_a_member_has_a_bounded_number_of_connections(ends, monkeypatch):
    monkeypatch.setattr(endpoints, "MOST_CONNECTIONS", 2)
    async with contextlib.AsyncExitStack() as opened, ends.listening() as port:
        for _ in range(2):
            _, writer = await opened.enter_async_context(raw(ends.gateway, port))
            writer.write(hello())
        await eventually_async(lambda: len(ends.received) >= 2)
        await opened.enter_async_context(raw(ends.gateway, port))
        assert "has 2 connections here, which is most" in await cut(ends)


async def test_the_kernel_watches_connections_between_boxes(ends):
    node = PeerIdentity("node", "far", ends.node.key_hash)
    async with ends.listening() as port:
        client = TlsClient(ends.gateway.client_context, LIMITS)
        connection = await connect(Endpoint(f"tls:127.0.0.1:{port}", node), ends.connection, client)
        connected = connection.transport.get_extra_info("socket")
        options = (socket.TCP_NODELAY, socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE)
        assert [connected.getsockopt(socket.IPPROTO_TCP, one) for one in options] == [1, 2000, 2]
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        connection.close()


async def test_who_connects_bounds_what_is_answered(ends):
    errors: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def answer(reader, writer) -> None:
        writer.write(prefix(10, MIB + 1) + bytes(100))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=ends.node.server_context())
    port = server.sockets[0].getsockname()[1]
    made = await connect(
        Endpoint(f"tls:127.0.0.1:{port}", PeerIdentity("node", "far", ends.node.key_hash)),
        lambda kind, **named: kind(FromExecutor, print, lambda _, error: errors.put_nowait(error), **named),
        TlsClient(ends.gateway.client_context, LIMITS),
    )
    assert made.most_sent == 2 * MIB
    assert "frame too large" in str(await asyncio.wait_for(errors.get(), 60))
    server.close()


async def test_an_executor_cuts_a_core_that_sends_more_than_a_query_may_have(ends, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Executor(tmp_path, address=f"127.0.0.1:{port}", max_request_mb="100", max_json_mb="1") as executor:
        executor.node.connection.send(Cluster(ends.node.pem, (("box-gateway", ends.gateway.key_hash, 1),)))

        async def cut_for(said: str, *frames: bytes) -> None:
            """Send frames, again while the executor does not listen yet, until it says so."""

            async def says() -> bool:
                with contextlib.suppress(OSError):
                    async with raw(ends.gateway, port) as (reader, writer):
                        for frame in frames:
                            writer.write(frame)
                        await reader.read()
                return said in (tmp_path / "log").read_text()

            await eventually_async(says, of=[executor])

        await cut_for(f"at most {GREETING.header} and 0", prefix(20_000, 0))
        await cut_for(f"and {100 * MIB}", hello(), prefix(10, 100 * MIB + 1))


def test_outputs_that_no_core_would_accept_fail_their_queries_alone():
    small, large = (GroupAnswer(places, (ResultTensor("y", "FP32", (1,), n),)) for places, n in (([0], 10), ([2], 11)))
    kept, failed = split_large([small, large], 10, range(3))
    assert kept == [small] and [place for place, _ in failed] == [2]
    assert "have 11 bytes; at most 10" in failed[0][1]
    assert [place for place, _ in split_large([GroupAnswer(None, large.headers)], 10, range(3))[1]] == [0, 1, 2]
