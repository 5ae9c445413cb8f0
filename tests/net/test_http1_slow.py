"""HTTP/1.1 servers that stop, and clients that read slowly."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from workers.net.http1 import HttpServer
from workers.net.http1.connection import HttpConnection
from workers.net.limits import Http1Limits

from .http1_client import KIB, MIB, Held, Transport, connected, everywhere, get, hurry_none, post, serving
from .http2_client import eventually

# --- stopping ---------------------------------------------------------------------------------------------------------


async def test_a_server_that_stops_waits_for_the_last_one_though_it_was_idle_before():
    async with serving() as (server, held), connected(server) as one, connected(server) as two:
        one.send(get("/hold"))
        await eventually(lambda: len(held.exchanges) == 1 and len(server.connections) == 2, "both are there")
        stopping = asyncio.create_task(server.drain(120.0))
        await asyncio.sleep(0)
        held.exchanges[0].respond(200, ())
        assert (await one.answer())[0] == 200
        # On its way when the server began to stop.
        two.send(get("/hold"))
        await eventually(lambda: len(held.exchanges) == 2, "it is there")
        await asyncio.sleep(0.3)
        assert not stopping.done()
        held.exchanges[1].respond(200, (), (b"the last",))
        assert (await two.answer())[2] == b"the last"
        await asyncio.wait_for(stopping, 60)


async def test_clients_learn_from_their_next_answer_that_a_server_stops():
    # Clients whose connection was idle learn it, too: it stays open for the moment for which the server lingers.
    async with serving() as (server, _), connected(server) as one, connected(server) as two:
        for browser in (one, two):
            browser.send(get("/next"))
            assert (await browser.answer())[0] == 200
        stopping = asyncio.create_task(server.drain(120.0, linger_s=120.0))
        await asyncio.sleep(0.1)
        for browser in (one, two):
            assert not stopping.done()
            browser.send(get("/next"))
            status, head, _ = await browser.answer()
            assert status == 200 and b"connection: close" in head.lower()
            assert await browser.closed()
        await asyncio.wait_for(stopping, 60)


@everywhere
async def test_a_server_that_stops_waits_for_answers_to_be_taken():
    async with (
        serving(64 * MIB) as (server, held),
        connected(server, 64 * KIB) as one,
        connected(server, 64 * KIB) as two,
    ):
        one.send(get("/hold"))
        two.send(get("/hold"))
        await eventually(lambda: len(held.exchanges) == 2, "both ask")
        hurry_none(server)
        # One is answered before, one while it stops.
        held.exchanges[0].respond(200, (), (b"a" * (8 * MIB),))
        stopping = asyncio.create_task(server.drain(120.0))
        await asyncio.sleep(0)
        held.exchanges[1].respond(200, (), (b"a" * (8 * MIB),))
        await asyncio.sleep(0.1)
        assert not stopping.done()
        for browser in (one, two):
            assert len((await browser.answer())[2]) == 8 * MIB
        await asyncio.wait_for(stopping, 60)
        assert not server.connections


@everywhere
async def test_a_server_that_stops_waits_no_longer_than_it_may():
    async with serving() as (server, held), connected(server, 64 * KIB) as browser:
        browser.send(get("/hold"))
        await eventually(lambda: held.exchanges, "it asks")
        hurry_none(server)
        held.exchanges[0].respond(200, (), (b"a" * (8 * MIB),))
        await asyncio.wait_for(server.drain(0.2), 60)


# --- clients that read slowly -----------------------------------------------------------------------------------------


def sweep(server: HttpServer, now: float) -> None:
    for connection in list(server.connections):
        connection.sweep(now)


@everywhere
async def test_an_answer_is_given_up_only_where_nothing_of_it_is_taken():
    large = b"a" * (8 * MIB)
    async with (
        serving(64 * MIB, idle_s=300.0) as (server, held),
        connected(server, 64 * KIB) as slow,
        connected(server, 64 * KIB) as stuck,
    ):
        for browser in (slow, stuck):
            browser.send(get("/hold"))
        await eventually(lambda: len(held.exchanges) == 2, "both ask")
        hurry_none(server)
        # Longer under way than a client may be idle: it is silent for long, but what it is to take is new.
        now = time.monotonic() + 400
        sweep(server, now)
        for exchange in held.exchanges:
            exchange.respond(200, (), (large,))
        got = swept = 0
        while got < len(large):
            if got >= swept:
                # 50 s of virtual time for half a MiB: all of it takes longer than a client may be idle.
                swept, now = swept + 512 * KIB, now + 50
                sweep(server, now)
            piece = await asyncio.wait_for(slow.reader.read(128 * KIB), 60)
            assert piece, f"closed after {got} bytes"
            got += len(piece)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await stuck.answer()


@everywhere
async def test_answers_that_nobody_takes_have_one_limit():
    async with serving(4 * MIB) as (server, held), contextlib.AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(connected(server, 64 * KIB)) for _ in range(5)]
        for browser in browsers:
            browser.send(get("/hold"))
        await eventually(lambda: len(held.exchanges) == 5, "all ask")
        hurry_none(server)
        for exchange in held.exchanges:
            exchange.respond(200, (), (b"a" * (2 * MIB),))
        await eventually(lambda: len(server.connections) < 5, "the last ones are given up")
        assert MIB < server.unsent_bytes <= 4 * MIB
        left, answered = len(server.connections), 0
        for browser in browsers:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
                answered += len((await browser.answer())[2]) == 2 * MIB
        assert answered == left > 1
        await eventually(lambda: server.unsent_bytes == 0, "what was taken counts no more")


@everywhere
async def test_of_answers_that_nobody_takes_the_connection_with_most_is_given_up():
    async with serving(6 * MIB) as (server, held), contextlib.AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(connected(server, 64 * KIB)) for _ in range(4)]
        for number, browser in enumerate(browsers, 1):
            browser.send(get("/hold"))
            await eventually(lambda number=number: len(held.exchanges) == number, "it asks")
        hurry_none(server)
        for exchange, size in zip(held.exchanges, (4, 1, 1, 1), strict=True):
            exchange.respond(200, (), (b"a" * (size * MIB),))
        await eventually(lambda: len(server.connections) == 3, "one is given up")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await browsers[0].answer()
        for browser in browsers[1:]:
            assert len((await browser.answer())[2]) == MIB
        await eventually(lambda: server.unsent_bytes == 0, "what was taken counts no more")


@everywhere
async def test_one_answer_may_be_larger_than_all_that_may_wait():
    async with serving(MIB) as (server, held), connected(server) as browser:
        browser.send(get("/hold"))
        await eventually(lambda: held.exchanges, "it asks")
        hurry_none(server)
        held.exchanges[0].respond(200, (), (b"a" * (8 * MIB),))
        assert server.unsent_bytes > MIB
        assert len((await browser.answer())[2]) == 8 * MIB
        await eventually(lambda: server.unsent_bytes == 0, "it is taken")


# --- clients that send slowly -----------------------------------------------------------------------------------------

LIMITS = Http1Limits(body_bytes=MIB, buffered_bytes=MIB)


def begun() -> tuple[HttpConnection, Transport]:
    connection, transport = HttpConnection(HttpServer(Held(), LIMITS)), Transport()
    transport.protocol = connection
    connection.connection_made(transport)
    return connection, transport


async def test_a_head_that_comes_byte_by_byte_has_only_so_long():
    connection, transport = begun()
    transport.feed(b"GET / HTTP/1.1\r\nhost: ")
    since = time.monotonic()
    transport.feed(b"a")
    connection.touched = since + LIMITS.head_s
    connection.sweep(since + LIMITS.head_s - 5)
    assert transport.out == b""
    connection.sweep(since + LIMITS.head_s + 5)
    assert transport.out.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("enough", [True, False])
async def test_a_body_must_come_with_a_least_rate(enough):
    connection, transport = begun()
    transport.feed(post("/", bytes(500_000))[:-500_000])
    later = time.monotonic() + LIMITS.body_rate.period_s + 10
    due = int(LIMITS.body_rate.bytes_per_s * (LIMITS.body_rate.period_s + 10))
    transport.feed(b"a" * (due + 10 * 4096 if enough else due - 10 * 4096))
    connection.touched = later
    connection.sweep(later)
    assert transport.out.startswith(b"" if enough else b"HTTP/1.1 408 ") and bool(transport.out) is not enough


@pytest.mark.parametrize("known", [False, True], ids=["a new head", "a head seen before"])
async def test_what_came_fast_does_not_let_the_rest_of_a_body_stand(known):
    connection, transport = begun()
    whole = post("/", bytes(900_000))
    if known:
        transport.feed(whole)
        transport.out.clear()
    head = len(whole) - 900_000 + 100
    transport.feed(whole[:head])
    since = now = time.monotonic()
    transport.feed(bytes(890_000))
    while not transport.out and now < since + 1000:
        now += 5
        # A few bytes more, so that it is not silent.
        transport.feed(b"a")
        connection.touched = now
        connection.sweep(now)
    assert transport.out.startswith(b"HTTP/1.1 408 ") and b"bytes/s" in transport.out
    assert now - since < 2 * LIMITS.body_rate.period_s + 11
