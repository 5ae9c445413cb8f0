"""HTTP/2 frame by frame, and a gRPC server that gives back what it gets.

The frames are for requests that no client's library would send.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator

import grpc
import hpack

from tools.waiting import eventually_async
from workers.net import compression
from workers.net.grpc import Admitted, Call, Code, GrpcServer, StatusError, parse_timeout
from workers.net.http2 import HeaderList, Http2Connection
from workers.net.limits import GrpcLimits, Http2Limits

from . import wire as h2
from .http1_client import Transport

CODE = grpc.StatusCode
KIB = 1024
MIB = 1024 * KIB
HEAD = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/echo"),
    (":authority", "test"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


def prefixed(message: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(message)) + message


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    def head(self, number: int, flags: int = h2.END_HEADERS, fields=HEAD) -> bytes:
        return h2.frame(h2.HEADERS, flags, number, self.encoder.encode(fields))

    def ask(self, number: int, message: bytes, fields=HEAD) -> None:
        self.send(self.head(number, fields=fields), h2.frame(h2.DATA, h2.END_STREAM, number, prefixed(message)))

    async def frame(self) -> tuple[int, int, int, bytes]:
        """The next one: (kind, flags, stream, payload)."""
        header = await asyncio.wait_for(self.reader.readexactly(h2.HEADER_BYTES), 60)
        length, kind, flags, number = h2.parse_header(header)
        return kind, flags, number, await asyncio.wait_for(self.reader.readexactly(length), 60)

    async def until(self, kind: int) -> tuple[int, int, bytes]:
        """(flags, stream, payload) of the next frame of a kind."""
        while True:
            found, *rest = await self.frame()
            if found == kind:
                return tuple(rest)

    async def response(self, number: int) -> tuple[bytes, dict[bytes, bytes]]:
        """(data, head and trailers) of a stream."""
        data, fields = b"", {}
        while True:
            kind, flags, stream, payload = await self.frame()
            if kind == h2.HEADERS:
                headers = dict(self.decoder.decode(payload, raw=True))
                fields |= headers if stream == number else {}
            assert kind != h2.RST_STREAM or stream != number, "reset"
            if stream != number:
                continue
            data += payload if kind == h2.DATA else b""
            if flags & h2.END_STREAM and kind in (h2.DATA, h2.HEADERS):
                return data, fields

    async def ended(self) -> tuple[int, str]:
        """Why the server hung up: code and words."""
        _, _, payload = await self.until(h2.GOAWAY)
        assert await asyncio.wait_for(self.reader.read(), 60) == b""
        return struct.unpack_from(">I", payload, 4)[0], payload[8:].decode()


@contextlib.asynccontextmanager
async def connected(port: int, settings: dict[int, int] | None = None) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    peer = Peer(reader, writer)
    peer.send(h2.PREFACE, h2.settings(settings or {}))
    try:
        yield peer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


class Echo:
    """Answers each call with the message that it got.

    ``/hold`` and ``/streams`` wait, ``/streams`` takes any number of messages, and ``/open`` is as ``/echo``, but needs
    no key.

    Attributes:
        held: calls that wait.
    """

    def __init__(self) -> None:
        self.held: list[Call] = []
        self.got: list[bytes] = []
        self.gone: list[Call] = []
        self.refusals: list[StatusError] = []
        self.key = object()
        self.hear = lambda call, data: call.settle(data)

    def admit(self, headers: HeaderList) -> Admitted:
        path = headers.fields[b":path"]
        timeout = headers.fields.get(b"grpc-timeout")
        endpoint = {
            b"/echo": _Endpoint(self),
            b"/open": _Endpoint(self),
            b"/hold": _Endpoint(self, True),
            b"/streams": _Endpoint(self, True, True),
        }
        if path not in endpoint:
            return Admitted(self.key, None, StatusError(Code.UNIMPLEMENTED, "method: not known"))
        encoding = headers.fields.get(b"grpc-encoding", b"identity")
        key = headers.fields.get(b"authorization", b"a key").decode()
        seconds = None if timeout is None else parse_timeout(timeout)
        return Admitted(self.key, endpoint[path], None, seconds, encoding, "" if path == b"/open" else key)

    def current(self, admitted: Admitted) -> bool:
        return admitted.config is self.key

    def rejected(self, error: StatusError) -> None:
        self.refusals.append(error)

    def stop(self) -> None:
        pass


class _Endpoint:
    takes_compressed = True

    def __init__(self, echo: Echo, hold: bool = False, streams: bool = False):
        self.echo, self.hold, self.streams = echo, hold, streams

    def opened(self, call: Call) -> None:
        call.waiter = self

    def message(self, call: Call, data, encoding: bytes = b"identity") -> None:
        data = compression.decompress(encoding, data, 1 << 20)
        self.echo.got.append(bytes(data))
        if self.hold:
            call.waiter = self
            self.echo.held.append(call)
        else:
            self.echo.hear(call, data)

    def ended(self, call: Call) -> None:
        call.complete()

    def gone(self, call: Call) -> None:
        self.echo.gone.append(call)

    def drained(self, call: Call) -> None:
        pass


@contextlib.asynccontextmanager
async def serving(
    message_bytes: int = 1 << 20, most_bytes: int = 4 << 20, **limits
) -> AsyncIterator[tuple[GrpcServer, Echo]]:
    echo = Echo()
    server = GrpcServer(echo, GrpcLimits(message_bytes=message_bytes, buffered_bytes=most_bytes, **limits))
    await server.start("127.0.0.1", 0)
    try:
        yield server, echo
    finally:
        await server.drain(0.1)
        await server.close()


class Unplugged:
    """A server's connection without a socket, an event loop, or sweeps of its own."""

    def __init__(self, message_bytes: int = MIB, buffered_bytes: int = 4 * MIB, **limits):
        self.echo, self.transport = Echo(), Transport()
        # There is no event loop that would give it a next turn.
        made = GrpcLimits(
            message_bytes=message_bytes, buffered_bytes=buffered_bytes, http2=Http2Limits(turn_s=60.0), **limits
        )
        self.server = GrpcServer(self.echo, made)
        self.connection = Http2Connection(self.server, made.http2)
        self.connection.connection_made(self.transport)

    @property
    def left(self) -> tuple[int, int, int]:
        """Streams, and bytes of requests and responses that the server counts."""
        return self.server.streams, self.server.reading, self.server.unsent


async def eventually(true, what: str) -> None:
    await eventually_async(true, why=what)


async def still_serves(peer: Peer, number: int) -> None:
    """Check that the server answers one more call on the connection."""
    peer.ask(number, b"still there?")
    data, fields = await peer.response(number)
    assert (data, fields[b"grpc-status"]) == (prefixed(b"still there?"), b"0")


def to(path: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [(name, path if name == ":path" else value) for name, value in HEAD] + list(more)


async def status(peer: Peer, number: int) -> tuple[grpc.StatusCode, str]:
    _, fields = await peer.response(number)
    codes = {code.value[0]: code for code in CODE}
    return codes[int(fields[b"grpc-status"])], fields.get(b"grpc-message", b"").decode()
