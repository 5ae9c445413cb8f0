"""Each request of a connection is answered once and in its turn, whatever happens."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from workers.net.http1 import Exchange, HttpServer, RequestHead
from workers.net.http1.connection import HttpConnection
from workers.net.limits import Http1Limits

from .http1_client import Transport

KIB = 1024
#: of those that are larger, bodies behind known heads are read into place
SIZES = (0, 0, 10, 1000, 60 * KIB, 70 * KIB, 300 * KIB)


class Handler:
    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.open: list[Exchange] = []
        self.bodies: dict[str, bytes] = {}
        buffered_bytes = rnd.choice([300 * KIB, 2000 * KIB, 64_000 * KIB])
        self.server = HttpServer(self, Http1Limits(body_bytes=400 * KIB, buffered_bytes=buffered_bytes))

    def render_error(self, status: int, message: str):
        return status, (), (message.encode(),)

    def preflight(self, head: RequestHead):
        return (404, (), (b"no",)) if head.target == b"/no" else None

    def handle(self, exchange: Exchange) -> None:
        self.open.append(exchange)
        if self.rnd.random() < 0.4:
            self.answer()

    def answer(self) -> None:
        exchange = self.open.pop()
        body = bytes(exchange.body)
        assert body == bytes(len(body)), "nobody else's"
        if self.rnd.random() < 0.5:
            exchange.respond(200, (), (b"%d" % len(body),), close=self.rnd.random() < 0.02)
        else:
            text = b"%d" % len(body)
            exchange.succeed(b"content-length: %d\r\n\r\n" % len(text) + text)

    def disconnected(self, exchange: Exchange) -> None:
        # One whose turn has come may not have begun yet.
        if exchange in self.open:
            self.open.remove(exchange)


def request(rnd: random.Random) -> tuple[bytes, int]:
    size = rnd.choice(SIZES)
    lines = ["POST /x HTTP/1.1", "host: a"]
    if rnd.random() < 0.2:
        lines.append(f"x: {rnd.randrange(5)}")
    if rnd.random() < 0.1:
        lines.append("expect: 100-continue")
    if rnd.random() < 0.2:
        lines += ["connection: upgrade, http2-settings", "upgrade: h2c"]
    if rnd.random() < 0.2:
        lines.append("transfer-encoding: chunked")
        body, left = b"", size
        while left:
            some = min(left, rnd.choice([1, 1000, 100 * KIB]))
            if some == 1 and left > 100:
                some = left // 2
            body += b"%x\r\n" % some + bytes(some) + b"\r\n"
            left -= some
        body += b"0\r\n\r\n"
    else:
        lines.append(f"content-length: {size}")
        body = bytes(size)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body, size


async def converse(rnd: random.Random) -> tuple[int, int, int]:
    """One conversation: how many requests were sent, answered and refused."""
    handler, transport = Handler(rnd), Transport()
    server = handler.server
    connection = HttpConnection(server)
    transport.protocol = connection
    connection.connection_made(transport)
    asked = [request(rnd) for _ in range(rnd.randrange(1, 30))]
    sizes = [size for _, size in asked]
    data = b"".join(sent for sent, _ in asked)
    if rnd.random() < 0.2:
        data += b"POST /no HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nand so on"
    elif rnd.random() < 0.1:
        data += b"POST /no HTTP/9.1\r\nwhat is it?"
    else:
        # Cut off.
        data = data[: len(data) - (rnd.randrange(40) if rnd.random() < 0.3 else 0)]
    # Each piece is distinguished from the others by nothing but its place: bodies are zeros, heads are not.
    while (data or handler.open or connection._waiting) and not transport.closed:
        chance = rnd.random()
        if chance < 0.5 and data:
            # Small pieces of heads, large ones of bodies.
            data = data[transport.feed(data[: rnd.choice([1, 20, 100, 5000, 64 * KIB, 256 * KIB])]) :]
        elif chance < 0.7 and handler.open:
            handler.answer()
        elif chance < 0.75:
            transport.pending = rnd.choice([70_000, 1000_000])
            if not connection._write_paused:
                connection.pause_writing()
        elif chance < 0.85 and connection._write_paused:
            transport.pending = 0
            connection.resume_writing()
        elif chance < 0.86:
            connection.sweep(time.monotonic() + rnd.choice([0, 1000]))
        elif chance < 0.861:
            break
        await asyncio.sleep(0)
        assert server.active == len(handler.open) + (connection._active is not None and not handler.open)
        assert server.buffered_bytes <= server.limits.buffered_bytes
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert (server.active, server.buffered_bytes, server.unsent_bytes, server.connections) == (0, 0, 0, set())
    assert not handler.open
    out, answered, refused = bytes(transport.out), [], 0
    while out:
        head, _, out = out.partition(b"\r\n\r\n")
        if head == b"HTTP/1.1 100 Continue":
            continue
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        body, out = out[:length], out[length:]
        assert not refused, "a refusal is the last"
        if head.startswith(b"HTTP/1.1 200 "):
            answered.append(int(body))
        else:
            refused = 1
            assert b"connection: close" in head
    assert answered == sizes[: len(answered)], "in their turn, and none left out"
    return len(asked), len(answered), refused


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_comes_is_answered_in_its_turn_and_accounted_for(seed):
    rnd = random.Random(seed)
    asked, answered, refused = map(sum, zip(*[await converse(rnd) for _ in range(60)], strict=True))
    assert 0.2 * asked < answered < asked
    assert refused > 5
