"""Streams of queries whose clients do not read, say something wrong or are in no hurry: nobody else notices, and what
is kept for them is counted."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from workers.gateway import rpc_call, rpc_stream
from workers.gateway.errors import Overloaded
from workers.gateway.http2 import frames as h2

from .http2_client import Peer, connected, eventually, prefixed, serving
from .test_grpc_calls import CODE, KIB, MIB, Plane, answer, ask, status, streaming, to, told

SHUT = {h2.INITIAL_WINDOW_SIZE: 0}
#: compressed, and nothing says how
WRONG = prefixed(b"a", 1)


async def unread(peer: Peer, plane: Plane, number: int) -> None:
    """Open a stream of which an answer is on its way that the client does not take."""
    peer.send(peer.head(number))
    count = len(plane.asked)
    ask(peer, number, b"a", b"b")
    await eventually(lambda: len(plane.asked) == count + 2, "it is asked")
    plane.asked[count][1].settle(answer("a"))


# --- refused while an answer is on its way ----------------------------------------------------------------------------


@pytest.mark.parametrize("more", [b"", WRONG, prefixed(b"c")], ids=["alone", "twice", "with more behind"])
@pytest.mark.parametrize("end", [0, h2.END_STREAM], ids=["open", "at its end"])
async def test_a_stream_that_is_refused_with_an_answer_unread_ends_alone(caplog, end, more):
    async with streaming() as (server, plane, endpoint), connected(server.port, SHUT) as peer:
        await unread(peer, plane, 1)
        peer.send(h2.frame(h2.DATA, end, 1, WRONG + more))
        await eventually(lambda: not endpoint.open, "it is refused")
        assert (plane.cancelled, server.reading) == (1, 0)
        # Another one goes on.
        peer.send(peer.head(3))
        ask(peer, 3, b"x", end=True)
        await eventually(lambda: len(plane.asked) == 3, "it is asked")
        plane.asked[2][1].settle(answer("x"))
        peer.send(h2.window_update(3, KIB))
        assert await status(peer, 3) == (CODE.OK, "")
        # And the first one's answer comes before its status.
        peer.send(h2.window_update(1, KIB))
        assert (await told(peer, 1))[0].infer_response.id == "a"
        code, said = await status(peer, 1)
        assert (code, "does not say how" in said) == (CODE.INVALID_ARGUMENT, True)
        assert (server.streams, server.reading, server.unsent) == (0, 0, 0)
    assert "handler_failed" not in caplog.text


@pytest.mark.parametrize("how", ["reset", "gone"])
async def test_a_stream_that_was_refused_and_is_given_up_leaves_nothing(how):
    async with streaming() as (server, plane, endpoint), connected(server.port, SHUT) as peer:
        await unread(peer, plane, 1)
        await unread(peer, plane, 3)
        peer.send(h2.frame(h2.DATA, 0, 1, WRONG))
        await eventually(lambda: len(endpoint.open) == 1, "it is refused")
        if how == "reset":
            peer.send(h2.rst_stream(1, h2.CANCEL), h2.window_update(3, KIB))
            assert (await told(peer, 1))[0].infer_response.id == "a"
            await eventually(lambda: server.streams == 1, "it is forgotten")
        peer.writer.transport.abort()
        await eventually(lambda: not server.connections, "the connection is forgotten")
        assert (server.streams, server.reading, server.unsent) == (0, 0, 0)
        assert (plane.cancelled, endpoint.open) == (2, set())


async def test_who_was_refused_and_takes_nothing_is_given_up_and_so_is_the_next(monkeypatch):
    monkeypatch.setattr(rpc_call, "WRITE_TIMEOUT_S", 0.2)
    async with streaming() as (server, plane, endpoint), connected(server.port, SHUT) as peer:
        for number in (1, 3):
            await unread(peer, plane, number)
            peer.send(h2.frame(h2.DATA, 0, number, WRONG))
            assert (await peer.until(h2.RST_STREAM))[1] == number
        assert (server.streams, server.unsent, endpoint.open) == (0, 0, set())


async def test_what_an_endpoint_raises_for_one_call_leaves_the_others_alone(monkeypatch, caplog):
    async with serving() as (server, echo), connected(server.port) as peer:
        for number in (1, 3, 5):
            peer.ask(number, b"x", to("/hold"))
        await eventually(lambda: len(echo.held) == 3, "all are there")
        kinds = {type(call.waiter) for call in echo.held}
        heard = []

        def gone(endpoint, call) -> None:
            heard.append(call.number)
            if call.number < 5:
                raise RuntimeError("a fault of ours")

        monkeypatch.setattr(kinds.pop(), "gone", gone)
        peer.send(h2.rst_stream(1, h2.CANCEL))
        await eventually(lambda: heard == [1], "it is told")
        peer.ask(7, b"still there?")
        assert (await peer.response(7))[0] == prefixed(b"still there?")
        peer.writer.transport.abort()
        await eventually(lambda: heard == [1, 3, 5], "the others are told, too")
        assert (server.streams, server.connections) == (0, set())
    assert caplog.text.count("grpc_handler_failed") == 2


# --- queries that wait for room ---------------------------------------------------------------------------------------


async def test_as_many_empty_queries_as_a_window_takes_are_counted_and_hold_nobody_up():
    """Each of them takes memory while it waits, though it has no bytes."""
    count = MIB // len(prefixed(b"")) - 100
    async with streaming(most_bytes=64 * MIB) as (server, plane, _), connected(server.port) as peer:
        peer.send(peer.head(1))
        ask(peer, 1, *[b""] * count)
        peer.send(h2.frame(h2.PING, 0, 0, b"12345678"))
        assert (await peer.until(h2.PING))[0] == h2.ACK
        await eventually(lambda: server.reading == (count - rpc_stream.QUERIES) * rpc_stream.EACH, "all are counted")
        assert len(plane.asked) == rpc_stream.QUERIES
    await eventually(lambda: server.reading == 0, "nothing is left")


async def test_small_queries_that_wait_are_no_way_around_the_limit():
    async with streaming(message_bytes=MIB, most_bytes=MIB) as (server, _, _), connected(server.port) as peer:
        peer.send(peer.head(1))
        ask(peer, 1, *[b"ab"] * (rpc_stream.QUERIES + MIB // rpc_stream.EACH))
        assert (await status(peer, 1))[0] == CODE.RESOURCE_EXHAUSTED
        assert (server.reading, server.streams) == (0, 0)


class Timed(Plane):
    """Notes when queries were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_at: list[float] = []

    def submit(self, data, left_s, read_at, waits, client) -> SimpleNamespace:
        self.read_at.append(read_at)
        return super().submit(data, left_s, read_at, waits, client)


async def test_the_time_of_a_query_that_waits_for_room_begins_with_its_turn():
    """As that of a pipelined one does: its client was not read as far, by what it can tell."""
    async with streaming() as (server, _, endpoint), connected(server.port) as peer:
        timed = Timed()
        endpoint.submit = timed.submit
        peer.send(peer.head(1))
        ask(peer, 1, *[b"x"] * (rpc_stream.QUERIES + 1))
        await eventually(lambda: len(timed.asked) == rpc_stream.QUERIES, "all but one are asked")
        await eventually(lambda: server.reading > 0, "that one waits")
        await asyncio.sleep(0.1)
        before = time.monotonic()
        timed.asked[0][1].settle(answer("x"))
        assert len(timed.asked) == rpc_stream.QUERIES + 1
        assert timed.read_at[-2] < before <= timed.read_at[-1]


async def test_a_stream_that_is_held_has_time_for_the_rest_of_its_message(monkeypatch):
    """It is not its client's fault that nothing comes."""
    monkeypatch.setattr(rpc_call, "READ_TIMEOUT_S", 1.5)
    async with streaming() as (server, plane, _), connected(server.port) as peer:
        peer.send(peer.head(1))
        ask(peer, 1, *[b"x"] * (rpc_stream.QUERIES + 1))
        peer.send(h2.frame(h2.DATA, 0, 1, prefixed(b"last")[:6]))
        await eventually(lambda: len(plane.asked) == rpc_stream.QUERIES, "there is no more room")
        await asyncio.sleep(2.2)
        assert server.streams == 1
        while plane.asked:
            plane.asked.pop(0)[1].settle(answer("x"))
        peer.send(h2.frame(h2.DATA, h2.END_STREAM, 1, prefixed(b"last")[6:]))
        await eventually(lambda: len(plane.asked) == 1, "it goes on")
        plane.asked[0][1].settle(answer("last"))
        assert (await told(peer, rpc_stream.QUERIES + 2))[-1].infer_response.id == "last"
        assert await status(peer, 1) == (CODE.OK, "")


async def test_others_have_their_turn_between_queries_that_are_refused_at_once():
    async with (
        streaming() as (server, plane, endpoint),
        connected(server.port) as many,
        connected(server.port) as other,
    ):
        count, seen = 20 * rpc_stream.QUERIES, []

        def submit(data, *given) -> SimpleNamespace:
            seen.append(bytes(data))
            if len(seen) == 1:
                other.send(other.head(1))
                ask(other, 1, b"other")
            return plane.submit(data, *given)

        endpoint.submit = submit
        many.send(many.head(1), h2.window_update(0, MIB), h2.window_update(1, MIB))
        many.send(h2.frame(h2.DATA, h2.END_STREAM, 1, count * prefixed(b"wrong")))
        assert len(await told(many, count)) == count
        assert await status(many, 1) == (CODE.OK, "")
        assert len(seen) == count + 1
        assert seen.index(b"other") <= 5 * rpc_stream.QUERIES
        assert server.reading == 0


# --- errors -----------------------------------------------------------------------------------------------------------


class Full(Plane):
    """Refuses queries at once, as a gateway without room for them does."""

    def submit(self, data, left_s, read_at, waits, client) -> SimpleNamespace:
        flight = super().submit(data, left_s, read_at, waits, client)
        if data.startswith(b"no"):
            waits.settle(Overloaded("no room"))
        return flight


async def test_an_error_that_is_there_at_once_names_its_query():
    async with streaming() as (server, _, endpoint), connected(server.port) as peer:
        full = Full()
        endpoint.submit = full.submit
        peer.send(peer.head(1))
        ask(peer, 1, b"no-1", b"yes", b"no-2", b"no-3", end=True)
        await eventually(lambda: len(full.asked) == 4, "all are asked")
        full.asked[1][1].settle(answer("yes"))
        found = [(one.infer_response.id, one.error_message) for one in await told(peer, 4)]
        assert found == [("no-1", "no room"), ("yes", ""), ("no-2", "no room"), ("no-3", "no room")]
        assert await status(peer, 1) == (CODE.OK, "")
        assert (server.streams, server.reading, server.unsent) == (0, 0, 0)
