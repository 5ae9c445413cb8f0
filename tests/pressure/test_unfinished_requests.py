"""Heads that no server has to take, and requests that take too long."""

from __future__ import annotations

import time

import pytest

from tests.gateway.conftest import AUTH
from workers.net.http1 import HttpServer
from workers.net.http1.connection import HttpConnection
from workers.net.limits import Http1Limits

from .conftest import MIB
from .wire import Client, parse

LIMITS = Http1Limits(body_bytes=MIB, buffered_bytes=MIB)


@pytest.mark.parametrize(
    ("head", "status", "part"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", 400, b"host"),
        (b"GET /health HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", 400, b"host"),
        (b"GET /health HTTP/2.0\r\nhost: a\r\n\r\n", 505, b"2.0"),
        (b"GET /health HTTP/0.9\r\nhost: a\r\n\r\n", 505, b"0.9"),
        (b"GET /health HTTP/7.3\r\nhost: a\r\n\r\n", 505, b"version"),
    ],
)
def test_a_head_that_is_refused_once_is_refused_again(served, head, status, part):
    for _ in range(2):
        with Client(served.gateway.port) as client:
            client.send(head)
            answer = client.rest()
            assert parse(answer[: answer.index(b"\r\n\r\n")])[0] == status
            assert part in answer


@pytest.mark.parametrize("begun", [b"5;x=", b"0\r\nx: "], ids=["chunk extension", "trailer"])
def test_chunks_with_more_said_about_them_than_a_head_may_hold_are_refused(served, begun):
    lines = ["POST /v2/models/app/infer HTTP/1.1", "host: a", "transfer-encoding: chunked"]
    head = "\r\n".join([*lines, *(": ".join(one) for one in AUTH.items()), "\r\n"]).encode()
    with served.bystanders(), Client(served.gateway.port) as client:
        client.send(head + begun)
        try:
            for _ in range(4):
                client.send(b"a" * MIB)
        except (BrokenPipeError, ConnectionResetError):
            return
        assert client.rest().startswith(b"HTTP/1.1 431 ")


class Wire:
    def __init__(self):
        self.written = b""
        self.protocol = None

    def set_protocol(self, protocol):
        self.protocol = protocol

    def is_closing(self):
        return False

    def can_write_eof(self):
        return False

    def get_write_buffer_size(self):
        return 0

    def writelines(self, parts):
        self.written += b"".join(parts)

    def write(self, data):
        self.written += data

    def get_extra_info(self, name):
        return None

    def pause_reading(self):
        pass

    resume_reading = close = pause_reading


class Handler:
    def handle(self, exchange):
        exchange.respond(200, ())

    def preflight(self, head):
        return None

    def disconnected(self, exchange):
        pass

    def render_error(self, status, message):
        return status, (), (message.encode(),)


def serving() -> HttpServer:
    return HttpServer(Handler(), LIMITS)


def connected() -> tuple[HttpConnection, Wire]:
    server = serving()
    connection, wire = HttpConnection(server), Wire()
    connection.connection_made(wire)
    return connection, wire


async def test_a_head_that_comes_byte_by_byte_has_only_so_long():
    connection, wire = connected()
    connection.data_received(b"GET / HTTP/1.1\r\nhost: ")
    begun = time.monotonic()
    connection.data_received(b"a")
    connection.touched = begun + LIMITS.head_s
    connection.sweep(begun + LIMITS.head_s - 5)
    assert wire.written == b""
    connection.sweep(begun + LIMITS.head_s + 5)
    assert wire.written.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("enough", [True, False])
async def test_a_body_must_come_with_a_least_rate(enough):
    connection, wire = connected()
    connection.data_received(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 500000\r\n\r\n")
    later = time.monotonic() + LIMITS.body_rate.period_s + 10
    due = int(LIMITS.body_rate.bytes_per_s * (LIMITS.body_rate.period_s + 10))
    connection.data_received(b"a" * (due + 10 * 4096 if enough else due - 10 * 4096))
    connection.touched = later
    connection.sweep(later)
    assert (wire.written == b"") is enough
    assert enough or wire.written.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("known", [False, True], ids=["a new head", "a head seen before"])
async def test_what_came_fast_does_not_let_the_rest_of_a_body_stand(known):
    """Whatever of it came at first: it is given up within two periods and a sweep."""
    connection, wire = connected()
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 900000\r\n\r\n"
    if known:
        connection.data_received(head + bytes(900_000))
        wire.written = b""
    connection.data_received(head + bytes(100))
    begun = now = time.monotonic()
    if known:
        reader = wire.protocol
        reader.get_buffer(-1)[:890_000] = bytes(890_000)
        reader.buffer_updated(890_000)
    else:
        connection.data_received(bytes(890_000))
    while not wire.written and now < begun + 1000:
        now += 5
        # A few bytes more, so that it is not silent.
        if known and wire.protocol is reader:
            reader.buffer_updated(1)
        else:
            connection.data_received(b"a")
        connection.touched = now
        connection.sweep(now)
    assert wire.written.startswith(b"HTTP/1.1 408 ") and b"bytes/s" in wire.written
    assert now - begun < 2 * LIMITS.body_rate.period_s + 11
