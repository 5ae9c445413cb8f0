"""Connections of HTTP/1.1 in trouble: what one client holds is counted, whoever was read is answered, and whoever reads
is given its time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator

import pytest
import uvloop

from workers.net.http1 import Exchange, HttpServer
from workers.net.limits import Http1Limits

from .http2_client import eventually

KIB = 1024
MIB = 1024 * KIB


class Held:
    """Requests to ``/hold`` wait, others are answered with their path."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.gone = 0

    def handle(self, exchange: Exchange) -> None:
        if exchange.head.target == b"/hold":
            self.exchanges.append(exchange)
        else:
            exchange.respond(200, (), (exchange.head.target,))

    def preflight(self, head):
        if head.target == b"/fault":
            raise RuntimeError("a fault of ours")
        head.client = head.headers.get(b"authorization", b"").decode()

    def disconnected(self, exchange: Exchange) -> None:
        self.gone += 1

    def render_error(self, status: int, message: str):
        return status, ((b"retry-after", b"1"),) if status == 503 else (), (message.encode(),)


@contextlib.asynccontextmanager
async def serving(buffered_bytes: int = 4 * MIB, **limits) -> AsyncIterator[tuple[HttpServer, Held]]:
    held = Held()
    server = HttpServer(held, Http1Limits(body_bytes=MIB, buffered_bytes=buffered_bytes, **limits))
    await server.start("127.0.0.1", 0)
    try:
        yield server, held
    finally:
        await server.drain(0.1)
        server.close()


class Browser:
    """A client's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes, bytes]:
        """(status, head, body)."""
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
    reader, writer = await asyncio.open_connection(sock=end, limit=receive_bytes or MIB)
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
    """Run on uvloop and asyncio's own loop."""

    @pytest.mark.parametrize("make", [uvloop.new_event_loop, asyncio.new_event_loop])
    def on(make):
        with asyncio.Runner(loop_factory=make) as runner:
            runner.run(test())

    return on


def hurry_none(server: HttpServer) -> None:
    """What a client does not take is to be the server's to keep, not the kernel's."""
    for connection in server.connections:
        end = connection._transport.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)


# --- requests that wait for others ------------------------------------------------------------------------------------


async def test_a_body_that_waits_behind_another_request_is_counted_until_its_turn():
    async with serving(2 * MIB) as (server, held), connected(server) as one, connected(server) as two:
        one.send(post("/hold") + post("/hold", bytes(MIB - KIB)))
        await eventually(lambda: held.exchanges and server.buffered_bytes > MIB - KIB, "it is read, and waits")
        two.send(post("/hold") + post("/x", bytes(MIB - 4 * KIB)))
        await eventually(lambda: server.buffered_bytes > 2 * (MIB - 4 * KIB), "and so does another")
        # There is no room for a third: the first, which holds most, is evicted.
        async with connected(server) as three:
            three.send(post("/x", bytes(MIB - 8 * KIB)))
            assert (await three.answer())[0] == 200
        held.exchanges[0].respond(200, (), (b"before",))
        assert (await one.answer())[2] == b"before"
        status, head, _ = await one.answer()
        assert (status, b"retry-after" in head, b"connection: close" in head) == (503, True, True)
        held.exchanges[1].respond(200, ())
        assert [(await two.answer())[0] for _ in range(2)] == [200, 200]
        await eventually(lambda: (server.buffered_bytes, server.active) == (0, 0), "nothing is left")
        two.send(post("/hold") + post("/hold", bytes(MIB - KIB)))
        await eventually(lambda: server.buffered_bytes > MIB - KIB, "it waits")
        two.writer.transport.abort()
        held.exchanges[2].respond(200, ())
        await eventually(lambda: server.buffered_bytes == 0, "who goes away leaves nothing")


def begun(key: str, size: int) -> bytes:
    """A request of which the last byte is missing."""
    return post("/x", bytes(size)).replace(b"\r\n", b"\r\nauthorization: " + key.encode() + b"\r\n", 1)[:-1]


async def test_memory_is_taken_from_the_key_that_holds_most_however_many_connections_it_has():
    async with contextlib.AsyncExitStack() as stack:
        server, _ = await stack.enter_async_context(serving(MIB))
        *crowd, other, late = [await stack.enter_async_context(connected(server)) for _ in range(10)]
        for browser in crowd:
            browser.send(begun("crowd", 100 * KIB))
        await eventually(lambda: server.buffered_bytes > 790 * KIB, "they are read")
        # It is the largest of all, and of a key that holds less.
        other.send(begun("other", 300 * KIB) + b"x")
        assert (await other.answer())[0] == 200
        await eventually(lambda: server.buffered_bytes < 790 * KIB, "some of the crowd have made room")
        assert server.buffered_bytes > 690 * KIB
        other.send(begun("other", 310 * KIB))
        await eventually(lambda: server.buffered_bytes > MIB - 20 * KIB, "it is read")
        # The next one of the crowd takes its room from the crowd.
        late.send(begun("crowd", 30 * KIB) + b"x")
        assert (await late.answer())[0] == 200
        other.send(b"x")
        assert (await other.answer())[0] == 200


async def test_a_long_pipeline_is_parsed_as_its_requests_are_answered():
    count = 6000
    async with serving(MIB) as (server, held), connected(server) as browser:
        browser.send(get("/hold"))
        await eventually(lambda: held.exchanges, "one is held")
        browser.send(b"".join(get(f"/{i}") for i in range(count)))
        await eventually(lambda: server.buffered_bytes > 64 * KIB, "others wait")
        assert len(next(iter(server.connections))._waiting) < 64 + 16 * KIB // len(get("/0"))
        held.exchanges[0].respond(200, ())
        assert (await browser.answer())[0] == 200
        assert server.buffered_bytes <= MIB
        assert [(await browser.answer())[2] for _ in range(count)] == [f"/{i}".encode() for i in range(count)]
        await eventually(lambda: (server.buffered_bytes, server.active) == (0, 0), "nothing is left")


async def test_a_pipeline_beyond_the_common_limit_is_rejected_behind_its_answers():
    async with serving(64 * KIB) as (server, held), connected(server) as browser:
        browser.send(get("/hold"))
        await eventually(lambda: held.exchanges, "one is held")
        browser.send(b"".join(get(f"/{i}") for i in range(2000)))
        await eventually(lambda: server.buffered_bytes > 60 * KIB, "others wait")
        assert server.buffered_bytes <= 64 * KIB
        held.exchanges[0].respond(200, ())
        told = [(await browser.answer())[0]]
        while told[-1] == 200:
            status, head, _ = await browser.answer()
            told.append(status)
        assert (told[-1], b"connection: close" in head, b"retry-after: 1" in head) == (503, True, True)
        assert await browser.closed()
        await eventually(lambda: (server.buffered_bytes, server.active) == (0, 0), "nothing is left")


async def test_requests_that_wait_are_answered_in_their_order_and_none_is_lost():
    async with serving() as (server, held), connected(server) as browser:
        for turn in range(3):
            browser.send(get("/hold") + b"".join(post(f"/{i}", b"x" * i) for i in range(300)))
            await eventually(lambda turn=turn: len(held.exchanges) == turn + 1, "one is held")
            held.exchanges[-1].respond(200, (), (b"held",))
            assert (await browser.answer())[2] == b"held"
            assert [(await browser.answer())[2] for _ in range(300)] == [f"/{i}".encode() for i in range(300)]
        assert (server.buffered_bytes, server.active) == (0, 0)


async def test_others_have_their_turn_between_requests_that_came_in_one_read():
    async with serving() as (server, _), connected(server) as many, connected(server) as other:
        handled, handle = [], server.handle

        def noted(exchange: Exchange) -> None:
            handled.append(exchange.head.target)
            handle(exchange)
            if len(handled) == 1:
                # The first of many has just begun.
                other.send(get("/other"))

        server.handle = noted
        many.send(b"".join(get(f"/{i}") for i in range(500)))
        assert (await other.answer())[2] == b"/other"
        assert [(await many.answer())[2] for _ in range(500)] == [f"/{i}".encode() for i in range(500)]
        assert handled.index(b"/other") < 100
        assert server.active == 0


@pytest.mark.parametrize("wrong", [b"what?\r\n\r\n", post("/x", bytes(100)).replace(b"100", b"9999999") + bytes(MIB)])
async def test_a_request_that_is_refused_behind_others_is_answered_behind_them(wrong):
    async with serving() as (server, held), connected(server) as browser:
        browser.send(get("/hold") + get("/a") + wrong)
        await eventually(lambda: held.exchanges, "one is held")
        held.exchanges[0].respond(200, (), (b"held",))
        answers = [await browser.answer() for _ in range(3)]
        assert [body for _, _, body in answers[:2]] == [b"held", b"/a"]
        assert answers[2][0] in (400, 413)
        assert [b"connection: close" in head for _, head, _ in answers] == [False, False, True]
        assert await browser.closed()
    assert (server.active, server.buffered_bytes) == (0, 0)


async def test_an_offer_to_upgrade_is_answered_behind_others_too():
    async with serving() as (server, held), connected(server) as browser:
        browser.send(get("/hold") + get("/a") + post("/b", b"body", "connection: upgrade", "upgrade: h2c") + get("/c"))
        await eventually(lambda: held.exchanges, "one is held")
        held.exchanges[0].respond(200, (), (b"held",))
        answers = [await browser.answer() for _ in range(4)]
        assert [body for _, _, body in answers] == [b"held", b"/a", b"/b", b"/c"]
        assert not any(b"connection: close" in head for _, head, _ in answers)


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True], ids=["a new head", "a head seen before"])
@pytest.mark.parametrize("size", [300 * KIB, MIB])
async def test_the_connection_that_holds_most_is_evicted_and_makes_room_at_once(known, size):
    async with serving(int(1.5 * size)) as (server, _), connected(server) as one, connected(server) as two:
        whole = post("/x", bytes(size))
        if known:
            one.send(whole)
            assert (await one.answer())[0] == 200
        one.send(whole[:-1])
        await eventually(lambda: server.buffered_bytes > size - 2 * KIB, "it is being read")
        # Too much for both: it is the first that fills the buffer, not whoever comes next.
        for piece in range(0, len(whole) - 1, 64 * KIB):
            two.send(whole[piece : min(piece + 64 * KIB, len(whole) - 1)])
            await two.writer.drain()
        status, head, _ = await one.answer()
        assert (status, b"retry-after: 1" in head) == (503, True)
        # The second one's bytes are left; the first connection may still be there.
        await eventually(lambda: size - 2 * KIB < server.buffered_bytes < size, "it is read")
        two.send(whole[-1:])
        assert (await two.answer())[0] == 200
        assert server.buffered_bytes == 0


async def test_a_connection_that_would_hold_most_is_refused_itself():
    async with serving(MIB) as (server, _), connected(server) as one, connected(server) as two:
        one.send(post("/x", bytes(400 * KIB))[:-1])
        await eventually(lambda: server.buffered_bytes > 399 * KIB, "it is being read")
        two.send(post("/x", bytes(800 * KIB)))
        assert (await two.answer())[0] == 503
        one.send(b"\0")
        assert (await one.answer())[0] == 200
        assert server.buffered_bytes == 0


async def test_a_fault_of_ours_while_a_head_is_judged_is_not_called_the_client_s():
    async with serving() as (server, _):
        async with connected(server) as browser:
            browser.send(get("/fault"))
            assert (await browser.answer())[::2] == (500, b"internal error")
            assert await browser.closed()
        async with connected(server) as browser:
            browser.send(get("/next"))
            assert (await browser.answer())[0] == 200


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
    """Also those whose connection was idle: it stays open for the moment that the server was told to linger."""
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
