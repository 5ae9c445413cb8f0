"""HTTP/1.1 servers that stop, and clients that read slowly.

Every client that reads is given its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from workers.net.http1 import HttpServer

from .http1_client import KIB, MIB, connected, everywhere, get, hurry_none, serving
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
    """Clients learn from their next answer that a server stops.

    Clients whose connection was idle learn it, too: it stays open for the moment for which the server lingers.
    """
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
