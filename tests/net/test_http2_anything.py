"""Clients that send anything, in any pieces: nothing is lost track of."""

from __future__ import annotations

import gc
import random
import time
import weakref

import hpack
import pytest

from . import wire as h2
from .http2_client import HEAD, Unplugged, prefixed

PATHS = ("/echo", "/echo", "/hold", "/streams", "/nothing")


def anything(rnd: random.Random) -> bytes:
    """A client's frames: most of them in order, some of them not."""
    encoder = hpack.Encoder()
    data = h2.PREFACE + h2.settings({h2.INITIAL_WINDOW_SIZE: rnd.choice([0, 10, 1000, h2.DEFAULT_WINDOW, 1 << 20])})
    number = 1
    for _ in range(rnd.randrange(1, 40)):
        known = rnd.choice([max(1, number - 2), 1, max(1, number - 6)])
        kind = rnd.randrange(14) if number > 1 else 0
        if kind < 5:
            fields = [(name, rnd.choice(PATHS) if name == ":path" else value) for name, value in HEAD]
            end = h2.END_STREAM if rnd.random() < 0.1 else 0
            data += h2.frame(h2.HEADERS, h2.END_HEADERS | end, number, encoder.encode(fields))
            if not end and rnd.random() < 0.8:
                body = prefixed(bytes(rnd.choice([0, 1, 100, 5000, 120_000])), rnd.random() < 0.1)
                for place in range(0, len(body), 9000):
                    last = place + 9000 >= len(body) and rnd.random() < 0.7
                    data += h2.frame(h2.DATA, last, number, body[place : place + 9000])
            number += 2
        elif kind == 5 and rnd.random() < 0.2:
            data += h2.frame(h2.DATA, rnd.choice([0, h2.END_STREAM, h2.PADDED]), known, bytes(rnd.randrange(30)))
        elif kind < 8:
            data += h2.rst_stream(known, h2.CANCEL)
        elif kind < 11:
            data += h2.window_update(rnd.choice([0, known]), rnd.choice([1, 100, 10_000, 1 << 20]))
        elif kind == 11:
            data += h2.settings({h2.INITIAL_WINDOW_SIZE: rnd.choice([0, 10, 1 << 20])})
        elif kind == 12 and rnd.random() < 0.1:
            data += h2.frame(rnd.randrange(12), rnd.randrange(256), known, rnd.randbytes(rnd.randrange(12)))
        elif kind == 13 and rnd.random() < 0.1:
            data += rnd.randbytes(20)
    return data


def converse(rnd: random.Random) -> tuple[bytes, int]:
    """One connection; what it was sent, and how many calls were answered meanwhile."""
    unplugged = Unplugged(message_bytes=100_000, buffered_bytes=300_000)
    echo, connection = unplugged.echo, unplugged.connection
    data, answered = anything(rnd), 0
    while data:
        size = rnd.choice([1, 7, 100, 5000, 100_000])
        connection.data_received(data[:size])
        data = data[size:]
        chance = rnd.random()
        if chance < 0.03:
            connection.pause_writing()
        elif chance < 0.1 and connection.paused:
            connection.resume_writing()
        elif chance < 0.4 and echo.held:
            call = echo.held.pop(rnd.randrange(len(echo.held)))
            answered += call.send(bytes(rnd.choice([0, 100, 50_000])), last=True)
        elif chance < 0.42:
            connection.sweep(time.monotonic())
    if connection.paused:
        connection.resume_writing()
    assert unplugged.server.streams == len(connection.streams)
    for stream in connection.streams.values():
        # Streams with something to send go on as soon as a window opens.
        assert stream.outbox is None or stream.window <= 0 or stream.number in connection.blocked
    assert not connection.blocked or connection.window <= 0
    connection.connection_lost(None)
    assert unplugged.left == (0, 0, 0)
    return bytes(unplugged.transport.out), answered


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_comes_is_accounted_for(seed):
    rnd = random.Random(seed)
    answered = whole = 0
    for _ in range(150):
        out, some = converse(rnd)
        answered += some
        decoder, offset, goodbye = hpack.Decoder(), 0, b""
        while offset < len(out):
            length, kind, _, _ = h2.parse_header(out, offset)
            begin, offset = offset + h2.HEADER_BYTES, offset + h2.HEADER_BYTES + length
            if kind == h2.HEADERS:
                decoder.decode(out[begin:offset])
            elif kind == h2.GOAWAY:
                goodbye = out[begin:offset]
        assert offset == len(out)
        whole += not goodbye
        assert goodbye[4:8] != b"\0\0\0\2", "internal error"
    assert answered > 5
    assert whole > 30


@pytest.mark.parametrize("more", [b"", h2.frame(h2.HEADERS, 0, 1, b"\x88")])
async def test_a_connection_that_is_gone_leaves_memory_without_the_collector(more):
    connection = Unplugged().connection
    connection.data_received(h2.PREFACE + h2.settings({}) + more)
    gc.disable()
    try:
        connection.connection_lost(None)
        known = weakref.ref(connection)
        del connection
        assert known() is None
    finally:
        gc.enable()
