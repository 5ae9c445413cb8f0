"""Both protocols over TLS on uvloop, as gateways serve them.

Bytes, flow control, and handshakes without end are tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import h2.connection
import pytest
import uvloop

from tools.waiting import eventually_async
from workers.net.grpc import Admitted, GrpcServer
from workers.net.http1 import HttpServer
from workers.net.limits import GrpcLimits, Http1Limits, TlsLimits
from workers.net.tls import TlsAcceptor
from workers.trust.server import OwnCertificate

MIB = 1024 * 1024


class Echo:
    """Answers a request's body, a call's message; ``/big`` gets 8 MiB."""

    streams = False

    def __init__(self) -> None:
        self.answered = 0

    def handle(self, exchange) -> None:
        self.answered += 1
        if exchange.head.target == b"/big":
            exchange.respond(200, (), (bytes(8 * MIB),))
        else:
            exchange.respond(200, (), (bytes(exchange.body),))

    def preflight(self, head):
        return (403, (), (b"no",)) if head.target == b"/refused" else None

    def disconnected(self, exchange) -> None:
        pass

    def render_error(self, status: int, message: str):
        return status, (), (message.encode(),)

    def admit(self, headers):
        return Admitted(None, self, client="anyone")

    def current(self, admitted) -> bool:
        return True

    def rejected(self, error) -> None:
        pass

    def stop(self) -> None:
        pass

    def message(self, call, data) -> None:
        self.answered += 1
        call.settle(bytes(data))


@pytest.fixture(scope="module")
def identity(tmp_path_factory) -> OwnCertificate:
    own = OwnCertificate(tmp_path_factory.mktemp("tls"))
    own.ensure(["localhost", "127.0.0.1"])
    return own


def server_context(identity: OwnCertificate, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.server_file)
    context.set_alpn_protocols([protocol])
    return context


def client_context(identity: OwnCertificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=identity.authority_file)


def on_uvloop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The whole test in a uvloop of its own."""

    def run(identity) -> None:
        uvloop.run(asyncio.wait_for(test(identity), 120))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@contextlib.asynccontextmanager
async def http(identity: OwnCertificate, **limits):
    echo = Echo()
    server = HttpServer(echo, Http1Limits(**{"body_bytes": 16 * MIB, "buffered_bytes": 64 * MIB} | limits))
    await server.start("127.0.0.1", 0, context=server_context(identity, "http/1.1"))
    try:
        yield server, echo
    finally:
        await server.drain(0.1)
        server.close()


async def connect(server: HttpServer, identity: OwnCertificate, **limits):
    return await asyncio.open_connection("127.0.0.1", server.port, ssl=client_context(identity), **limits)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head[9:12]), await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))


async def until(condition: Callable[[], bool]) -> None:
    await eventually_async(condition)


@on_uvloop
async def test_bodies_of_any_size_and_way_are_echoed(identity):
    """Bodies of any size are echoed, in whichever way they are read.

    Small ones come in one read, large ones are read into place, and several requests come in one record.
    """
    async with http(identity) as (server, _):
        reader, writer = await connect(server, identity)
        for size in (0, 1, 16 * 1024, 65536, 600_000, 5 * MIB):
            body = bytes(range(256)) * (size // 256) + bytes(size % 256)
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size + body)
            assert await answer(reader) == (200, body)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc" * 50)
        assert [await answer(reader) for _ in range(50)] == [(200, b"abc")] * 50
        writer.close()


@on_uvloop
async def test_a_request_in_the_same_packet_as_the_handshakes_end_is_answered(identity):
    async with http(identity) as (server, _):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context(identity).wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(MIB))
        tls.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        writer.write(outgoing.read())
        got = b""
        while b"HTTP/1.1 200" not in got:
            incoming.write(await reader.read(MIB))
            with contextlib.suppress(ssl.SSLWantReadError):
                got += tls.read(MIB)
        writer.close()


@on_uvloop
async def test_a_rejected_client_reads_why(identity):
    async with http(identity) as (server, _):
        reader, writer = await connect(server, identity)
        writer.write(b"POST /refused HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n" + bytes(1000))
        assert await answer(reader) == (403, b"no")
        writer.close()


@on_uvloop
async def test_responses_that_nobody_reads_are_counted_and_their_clients_aborted(identity):
    async with http(identity, buffered_bytes=12 * MIB) as (server, echo):
        clients = [await connect(server, identity, limit=1024) for _ in range(3)]
        await until(lambda: len(server.connections) == 3)
        for connection in server.connections:
            # The kernel must not take most of it.
            connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        for _, writer in clients[:2]:
            writer.write(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n" * 4)
            await writer.drain()
        # One may exceed the limit, two may not: the one that holds most is closed, and the other waits at its first.
        await until(lambda: len(server.connections) == 2)
        assert 0 < server.unsent_bytes <= 12 * MIB
        assert echo.answered == 2, "requests behind an unread response wait"
        reader, writer = clients[2]
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nok")
        assert await answer(reader) == (200, b"ok")
        for _, writer in clients:
            writer.transport.abort()
        await until(lambda: not server.connections)
        assert server.unsent_bytes == 0


@on_uvloop
async def test_a_slow_reader_gets_every_byte_of_every_response(identity):
    async with http(identity) as (server, _):
        reader, writer = await connect(server, identity, limit=64 * 1024)
        writer.write(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n" * 3)
        await until(lambda: server.unsent_bytes > 0)
        for _ in range(3):
            assert await answer(reader) == (200, bytes(8 * MIB))
        await until(lambda: server.unsent_bytes == 0)
        writer.close()


@on_uvloop
async def test_shutdown_waits_until_responses_are_read(identity):
    async with http(identity) as (server, _):
        reader, writer = await connect(server, identity, limit=1024)
        writer.write(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: any(connection.unsent for connection in server.connections))
        draining = asyncio.create_task(server.drain(120))
        await asyncio.sleep(0.3)
        assert not draining.done()
        assert await answer(reader) == (200, bytes(8 * MIB))
        await draining
        writer.close()


@on_uvloop
async def test_strangers_and_half_handshakes_are_closed_and_bounded(identity):
    echo = Echo()
    server = HttpServer(echo, Http1Limits(body_bytes=MIB, buffered_bytes=MIB))

    def connection():
        from workers.net.http1.connection import HttpConnection

        return HttpConnection(server)

    acceptor = TlsAcceptor(
        connection, server_context(identity, "http/1.1"), TlsLimits(handshakes=4, handshake_s=2.0, shutdown_s=1.0)
    )
    listener = await asyncio.get_running_loop().create_server(acceptor.connection, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    # The fifth evicts the first: nothing is waited for.
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
    with contextlib.suppress(ConnectionResetError):
        assert await silent[0][0].read() == b""
    # Others are served beside them, and a stranger gets an alert or nothing.
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(identity))
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nok")
    assert await answer(reader) == (200, b"ok")
    stranger, plain = await asyncio.open_connection("127.0.0.1", port)
    plain.write(b"neither TLS nor HTTP\r\n\r\n")
    with contextlib.suppress(ConnectionResetError):
        assert b"HTTP" not in await stranger.read()
    # The time of a half handshake ends.
    for half, _ in silent:
        with contextlib.suppress(ConnectionResetError):
            assert await half.read() == b""
    assert len(server.connections) == 1
    assert acceptor._count == 0 and not acceptor._pending
    writer.close()
    listener.close()


@on_uvloop
async def test_http_without_tls_is_told_to_use_https(identity):
    async with http(identity) as (server, _):
        head = b"POST / HTTP/1.1\r\nhost: box:8000\r\ncontent-length: 2000000\r\n\r\n"
        for pieces in ([head + bytes(2_000_000)], [bytes([byte]) for byte in head]):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            status, problem = await answer(reader)
            assert status == 400 and b"use https://box:8000" in problem
            writer.close()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="HTTP status 400"):
                await channel.unary_unary("/echo")(b"", timeout=60)


@on_uvloop
async def test_grpc_clients_negotiate_http2(identity):
    echo = Echo()
    server = GrpcServer(echo, GrpcLimits(message_bytes=8 * MIB, buffered_bytes=64 * MIB))
    await server.start("127.0.0.1", 0, context=server_context(identity, "h2"))
    credentials = grpc.ssl_channel_credentials(identity.authority_file.read_bytes())
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.secure_channel(f"localhost:{server.port}", credentials, options) as channel:
        call = channel.unary_unary("/echo")
        for size in (0, 1, 600_000, 5 * MIB):
            assert await call(bytes(size)) == bytes(size)
        assert await asyncio.gather(*(call(b"%d" % n) for n in range(200))) == [b"%d" % n for n in range(200)]
    context = client_context(identity)
    context.set_alpn_protocols(["h2", "http/1.1"])
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    client = h2.connection.H2Connection()
    client.initiate_connection()
    client.ping(b"nereus!!")
    writer.write(client.data_to_send())
    events = []
    while not any(isinstance(event, h2.events.PingAckReceived) for event in events):
        events += client.receive_data(await reader.read(65536))
    writer.close()
    await server.drain(1)
    await server.close()


def test_files_are_private(identity):
    for path in (identity.authority_key_file, identity.server_file):
        assert path.stat().st_mode & 0o077 == 0
    assert Path(identity.server_file).read_bytes().count(b"PRIVATE KEY") == 2
