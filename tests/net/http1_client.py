"""A server that holds requests, and clients of HTTP/1.1 for it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextvars import ContextVar

import pytest
import uvloop

from workers.net.http1 import Exchange, HttpServer
from workers.net.limits import Http1Limits
from workers.trust.server import OwnCertificate

KIB = 1024
MIB = 1024 * KIB
#: by which servers and clients encrypt; None: they do not
TLS: ContextVar[OwnCertificate | None] = ContextVar("TLS", default=None)


class Held:
    """Requests to ``/hold`` wait, ``/echo`` gives the body back, others are answered with their path."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.gone = 0

    def handle(self, exchange: Exchange) -> None:
        if exchange.head.target == b"/hold":
            self.exchanges.append(exchange)
        elif exchange.head.target == b"/echo":
            exchange.respond(200, (), (bytes(exchange.body),))
        else:
            exchange.respond(200, (), (exchange.head.target,))

    def preflight(self, head):
        if head.target == b"/fault":
            raise RuntimeError("a fault of ours")
        if head.target == b"/refused":
            return 403, (), (b"no",)
        head.client = head.headers.get(b"authorization", b"").decode()
        return None

    def disconnected(self, exchange: Exchange) -> None:
        self.gone += 1

    def render_error(self, status: int, message: str):
        return status, ((b"retry-after", b"1"),) if status == 503 else (), (message.encode(),)


class Transport:
    def __init__(self) -> None:
        self.protocol: asyncio.BaseProtocol | None = None
        self.out = bytearray()
        self.reading, self.closed, self.pending = True, False, 0

    def feed(self, data: bytes) -> int:
        """How much was read of it."""
        if self.closed or not self.reading:
            return 0
        if isinstance(self.protocol, asyncio.BufferedProtocol):
            view = self.protocol.get_buffer(-1)
            size = min(len(view), len(data))
            view[:size] = data[:size]
            self.protocol.buffer_updated(size)
            return size
        self.protocol.data_received(data)
        return len(data)

    def get_extra_info(self, name: str) -> None:
        return None

    def write(self, data) -> None:
        assert not self.closed
        self.out += data

    def writelines(self, pieces) -> None:
        self.write(b"".join(pieces))

    def set_protocol(self, protocol) -> None:
        self.protocol = protocol

    def get_write_buffer_size(self) -> int:
        return self.pending

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def can_write_eof(self) -> bool:
        return False


@contextlib.asynccontextmanager
async def serving(buffered_bytes: int = 4 * MIB, **limits) -> AsyncIterator[tuple[HttpServer, Held]]:
    held = Held()
    server = HttpServer(held, Http1Limits(**{"body_bytes": MIB, "buffered_bytes": buffered_bytes} | limits))
    await server.start("127.0.0.1", 0, context=server_context("http/1.1"))
    try:
        yield server, held
    finally:
        await server.drain(0.1)
        server.close()


def server_context(protocol: str) -> ssl.SSLContext | None:
    if (identity := TLS.get()) is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.server_file)
    context.set_alpn_protocols([protocol])
    return context


def client_context() -> ssl.SSLContext | None:
    identity = TLS.get()
    return None if identity is None else ssl.create_default_context(cafile=identity.authority_file)


class Browser:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes, bytes]:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(head[9:12]), head, await asyncio.wait_for(self.reader.readexactly(size), 60)

    async def closed(self) -> bool:
        with contextlib.suppress(ConnectionResetError):
            return not await asyncio.wait_for(self.reader.read(), 60)
        return True


@contextlib.asynccontextmanager
async def connected(server: HttpServer, receive_bytes: int | None = None) -> AsyncIterator[Browser]:
    end = socket.socket()
    if receive_bytes is not None:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    end.setblocking(False)
    await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", server.port))
    context = client_context()
    reader, writer = await asyncio.open_connection(
        sock=end, limit=receive_bytes or MIB, ssl=context, server_hostname="localhost" if context is not None else None
    )
    try:
        yield Browser(reader, writer)
    finally:
        writer.transport.abort()


def post(path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: a", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: a", *headers]).encode() + b"\r\n\r\n"


def everywhere(test):
    """Run on uvloop, without TLS and with it, and on asyncio's own loop."""

    @pytest.mark.parametrize(
        ("make", "tls"),
        [(uvloop.new_event_loop, False), (uvloop.new_event_loop, True), (asyncio.new_event_loop, False)],
    )
    def on(make, tls, identity):
        async def main() -> None:
            TLS.set(identity if tls else None)
            await test()

        with asyncio.Runner(loop_factory=make) as runner:
            runner.run(main())

    return on


def encrypted(test):
    def on(identity):
        async def main() -> None:
            TLS.set(identity)
            await test()

        uvloop.run(asyncio.wait_for(main(), 120))

    return on


def hurry_none(server: HttpServer) -> None:
    """Let the server keep what a client does not read, not the kernel."""
    for connection in server.connections:
        end = connection._transport.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
