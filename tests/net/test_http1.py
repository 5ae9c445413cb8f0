"""Memory that one client of HTTP/1.1 holds is counted, and answers come in order."""

from __future__ import annotations

import contextlib

import pytest

from workers.net.http1 import Exchange

from .http1_client import KIB, MIB, connected, get, post, serving
from .http2_client import eventually

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
        statuses = [(await browser.answer())[0]]
        while statuses[-1] == 200:
            status, head, _ = await browser.answer()
            statuses.append(status)
        assert (statuses[-1], b"connection: close" in head, b"retry-after: 1" in head) == (503, True, True)
        assert await browser.closed()
        await eventually(lambda: (server.buffered_bytes, server.active) == (0, 0), "nothing is left")


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
        many.send(b"".join(post(f"/{i}", b"x" * (i % 50)) for i in range(500)))
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


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True], ids=["a new head", "a head seen before"])
@pytest.mark.parametrize("size", [300 * KIB, MIB])
async def test_the_connection_that_holds_most_is_evicted_and_makes_room_at_once(known, size):
    async with serving(int(1.5 * size)) as (server, _), connected(server) as one, connected(server) as two:
        # The second holds less than the first, even if all of it is read at once.
        less = 3 * size // 4
        whole, smaller = post("/x", bytes(size)), post("/x", bytes(less))
        if known:
            for browser, request in ((one, whole), (two, smaller)):
                browser.send(request)
                assert (await browser.answer())[0] == 200
        one.send(whole[:-1])
        await eventually(lambda: server.buffered_bytes > size - 2 * KIB, "it is being read")
        # Too much for both: it is the first that fills the buffer, not whoever comes next.
        for piece in range(0, len(smaller) - 1, 64 * KIB):
            two.send(smaller[piece : min(piece + 64 * KIB, len(smaller) - 1)])
            await two.writer.drain()
        status, head, _ = await one.answer()
        assert (status, b"retry-after: 1" in head) == (503, True)
        # The second one's bytes are left; the first connection may still be there.
        await eventually(lambda: less - 2 * KIB < server.buffered_bytes < less, "it is read")
        two.send(smaller[-1:])
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
