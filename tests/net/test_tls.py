"""Both protocols over TLS on uvloop, as gateways serve them: bytes and handshakes.

Flow control and shutdown are tested with and without TLS in ``test_http1_slow.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import grpc
import h2.connection
import pytest

from workers.net.grpc import GrpcServer
from workers.net.http1.connection import HttpConnection
from workers.net.limits import GrpcLimits, TlsLimits
from workers.net.tls import TlsAcceptor

from .http1_client import MIB, TLS, Browser, client_context, connected, encrypted, get, post, server_context, serving
from .http2_client import Echo


@encrypted
async def test_bodies_of_any_size_and_way_are_echoed():
    """Small ones come in one read, large ones are read into place, and several requests come in one record."""
    async with serving(64 * MIB, body_bytes=16 * MIB) as (server, _), connected(server) as browser:
        for size in (0, 1, 16 * 1024, 65536, 600_000, 5 * MIB):
            body = bytes(range(256)) * (size // 256) + bytes(size % 256)
            browser.send(post("/echo", body))
            assert (await browser.answer())[::2] == (200, body)
        browser.send(post("/echo", b"abc") * 50)
        assert [(await browser.answer())[::2] for _ in range(50)] == [(200, b"abc")] * 50


@encrypted
async def test_a_request_in_the_same_packet_as_the_handshakes_end_is_answered():
    async with serving() as (server, _):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(MIB))
        tls.write(get("/"))
        writer.write(outgoing.read())
        got = b""
        while b"HTTP/1.1 200" not in got:
            incoming.write(await reader.read(MIB))
            with contextlib.suppress(ssl.SSLWantReadError):
                got += tls.read(MIB)
        writer.close()


@encrypted
async def test_a_rejected_client_reads_why():
    async with serving() as (server, _), connected(server) as browser:
        browser.send(post("/refused", bytes(1_000_000))[:1000])
        assert (await browser.answer())[::2] == (403, b"no")


@encrypted
async def test_strangers_and_half_handshakes_are_closed_and_bounded():
    async with serving() as (server, _):
        acceptor = TlsAcceptor(
            lambda: HttpConnection(server),
            server_context("http/1.1"),
            TlsLimits(handshakes=4, handshake_s=2.0, shutdown_s=1.0),
        )
        listener = await asyncio.get_running_loop().create_server(acceptor.connection, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        # The fifth evicts the first: nothing is waited for.
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        with contextlib.suppress(ConnectionResetError):
            assert await silent[0][0].read() == b""
        # Others are served beside them, and a stranger gets an alert or nothing.
        browser = Browser(*await asyncio.open_connection("127.0.0.1", port, ssl=client_context()))
        browser.send(post("/echo", b"ok"))
        assert (await browser.answer())[::2] == (200, b"ok")
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
        browser.writer.close()
        listener.close()


@encrypted
async def test_http_without_tls_is_told_to_use_https():
    async with serving() as (server, _):
        head = b"POST / HTTP/1.1\r\nhost: box:8000\r\ncontent-length: 2000000\r\n\r\n"
        for pieces in ([head + bytes(2_000_000)], [bytes([byte]) for byte in head]):
            browser = Browser(*await asyncio.open_connection("127.0.0.1", server.port))
            for piece in pieces:
                browser.send(piece)
                await browser.writer.drain()
            status, _, problem = await browser.answer()
            assert status == 400 and b"use https://box:8000" in problem
            browser.writer.close()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="HTTP status 400"):
                await channel.unary_unary("/echo")(b"", timeout=60)


@encrypted
async def test_grpc_clients_negotiate_http2():
    server = GrpcServer(Echo(), GrpcLimits(message_bytes=8 * MIB, buffered_bytes=64 * MIB))
    await server.start("127.0.0.1", 0, context=server_context("h2"))
    credentials = grpc.ssl_channel_credentials(TLS.get().authority_file.read_bytes())
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.secure_channel(f"localhost:{server.port}", credentials, options) as channel:
        call = channel.unary_unary("/echo")
        for size in (0, 1, 600_000, 5 * MIB):
            assert await call(bytes(size)) == bytes(size)
        assert await asyncio.gather(*(call(b"%d" % n) for n in range(200))) == [b"%d" % n for n in range(200)]
    context = client_context()
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
