"""Streams whose clients do not read, send something wrong or are in no hurry."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from types import SimpleNamespace

import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.net import wire as h2
from tests.net.http2_client import CODE, KIB, MIB, Peer, connected, eventually, prefixed, serving, status, to
from workers.gateway import rpc_stream
from workers.gateway.errors import Invalid, Overloaded
from workers.gateway.rpc_stream import Reply, Streaming
from workers.net.grpc import Admitted, Call, MessageParser
from workers.net.limits import Rate

SHUT = {h2.INITIAL_WINDOW_SIZE: 0}
#: compressed, and nothing says how
WRONG = prefixed(b"a", 1)


class Plane:
    def __init__(self, rejected) -> None:
        self.rejected = rejected
        self.asked: list[tuple[bytes, Reply]] = []
        self.cancelled = 0

    def infer(self, waits: Reply, data, *_) -> SimpleNamespace:
        if data == b"wrong":
            raise Invalid("wrong")
        self.asked.append((bytes(data), waits))
        return SimpleNamespace(query=SimpleNamespace(id=bytes(data).decode("latin-1")[:20]), waits=waits)

    def refuse(self, waits: Reply, error) -> None:
        self.rejected(error)
        waits.settle(error.with_traceback(None))

    def withdraw(self, flight) -> None:
        self.cancelled += 1


@contextlib.asynccontextmanager
async def streaming(**given):
    async with serving(**given) as (server, echo):
        plane = Plane(echo.rejected)
        endpoint = Streaming(plane)
        echo.admit = lambda head: Admitted(echo.key, endpoint, client="a key")
        yield server, plane, endpoint


async def received(peer: Peer, count: int) -> list[pb.ModelStreamInferResponse]:
    messages, found = MessageParser(16 * MIB, Rate()), []
    while len(found) < count:
        kind, _, _, payload = await peer.frame()
        if kind == h2.DATA:
            found += [pb.ModelStreamInferResponse.FromString(bytes(body)) for _, body in messages.feed(payload)]
    return found


def ask(peer: Peer, number: int, *queries: bytes, end: bool = False) -> None:
    body = b"".join(prefixed(query) for query in queries)
    pieces = [body[place : place + 16 * KIB] for place in range(0, len(body), 16 * KIB)]
    peer.send(*[h2.frame(h2.DATA, 0, number, piece) for piece in pieces])
    if end:
        peer.send(h2.frame(h2.DATA, h2.END_STREAM, number))


def answer(id: str, size: int = 0) -> bytes:
    return pb.ModelInferResponse(id=id, raw_output_contents=[bytes(size)]).SerializeToString()


async def unread(peer: Peer, plane: Plane, number: int) -> None:
    peer.send(peer.head(number))
    count = len(plane.asked)
    ask(peer, number, b"a", b"b")
    await eventually(lambda: len(plane.asked) == count + 2, "it is asked")
    plane.asked[count][1].settle(answer("a"))


# --- in order, and counted --------------------------------------------------------------------------------------------


async def test_queries_without_room_wait_and_are_counted():
    async with streaming() as (server, plane, _), connected(server.port) as peer:
        peer.send(peer.head(1))
        ask(peer, 1, *[b"%04d" % i + bytes(1000) for i in range(rpc_stream.MAX_QUERIES + 100)])
        await eventually(
            lambda: server.reading == 100 * (1004 + rpc_stream.WAITING_BYTES), "those without room are counted"
        )
        assert len(plane.asked) == rpc_stream.MAX_QUERIES
        for place in range(rpc_stream.MAX_QUERIES + 100):
            await eventually(lambda place=place: len(plane.asked) > place, "there is room again")
            plane.asked[place][1].settle(answer(f"{place:04}"))
        found = [one.infer_response.id for one in await received(peer, rpc_stream.MAX_QUERIES + 100)]
        assert found == [f"{place:04}" for place in range(rpc_stream.MAX_QUERIES + 100)]
        assert (server.reading, server.unsent) == (0, 0)


async def test_answers_whose_turn_has_not_come_have_one_limit_too():
    async with (
        streaming(message_bytes=MIB, most_bytes=MIB) as (server, plane, endpoint),
        connected(server.port) as peer,
    ):
        for number in (1, 3):
            peer.send(peer.head(number))
            ask(peer, number, *[b"%d" % i for i in range(4)])
        await eventually(lambda: len(plane.asked) == 8, "all are asked")
        for _, waits in plane.asked[1:4]:
            waits.settle(answer("x", 300 * KIB))
        assert server.unsent > 900 * KIB
        plane.asked[5][1].settle(answer("y", 300 * KIB))
        # The stream that would be too much is given up, the other is not.
        assert (await peer.until(h2.RST_STREAM))[1] == 3
        await eventually(lambda: plane.cancelled == 3, "its queries are forgotten")
        assert (len(endpoint.open), server.unsent > 900 * KIB) == (1, True)
        peer.writer.transport.abort()
        await eventually(lambda: (plane.cancelled, server.unsent, server.streams) == (4, 0, 0), "nothing is left")


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
        assert (await received(peer, 1))[0].infer_response.id == "a"
        code, said = await status(peer, 1)
        assert (code, "grpc-encoding is missing" in said) == (CODE.INVALID_ARGUMENT, True)
        assert (server.streams, server.reading, server.unsent) == (0, 0, 0)
    assert "handler_failed" not in caplog.text


async def test_what_an_endpoint_raises_for_one_call_leaves_the_others_alone(monkeypatch, caplog):
    async with serving() as (server, echo), connected(server.port) as peer:
        for number in (1, 3, 5):
            peer.ask(number, b"x", to("/hold"))
        await eventually(lambda: len(echo.held) == 3, "all are there")
        kinds = {type(call.waiter) for call in echo.held}
        notified = []

        def gone(endpoint, call) -> None:
            notified.append(call.number)
            if call.number < 5:
                raise RuntimeError("a fault of ours")

        monkeypatch.setattr(kinds.pop(), "gone", gone)
        peer.send(h2.rst_stream(1, h2.CANCEL))
        await eventually(lambda: notified == [1], "it is notified")
        peer.ask(7, b"still there?")
        assert (await peer.response(7))[0] == prefixed(b"still there?")
        peer.writer.transport.abort()
        await eventually(lambda: notified == [1, 3, 5], "the others are notified, too")
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
        await eventually(
            lambda: server.reading == (count - rpc_stream.MAX_QUERIES) * rpc_stream.WAITING_BYTES, "all are counted"
        )
        assert len(plane.asked) == rpc_stream.MAX_QUERIES
    await eventually(lambda: server.reading == 0, "nothing is left")


async def test_small_queries_that_wait_are_no_way_around_the_limit():
    async with streaming(message_bytes=MIB, most_bytes=MIB) as (server, _, _), connected(server.port) as peer:
        peer.send(peer.head(1))
        ask(peer, 1, *[b"ab"] * (rpc_stream.MAX_QUERIES + MIB // rpc_stream.WAITING_BYTES))
        assert (await status(peer, 1))[0] == CODE.RESOURCE_EXHAUSTED
        assert (server.reading, server.streams) == (0, 0)


class Timed(Plane):
    def __init__(self, rejected) -> None:
        super().__init__(rejected)
        self.read_at: list[float] = []

    def infer(self, waits: Reply, data, encoding, client, read_at, left_s) -> SimpleNamespace:
        self.read_at.append(read_at)
        return super().infer(waits, data)


async def test_the_time_of_a_query_that_waits_for_room_begins_with_its_turn():
    # The same holds for a pipelined query: as far as its client can tell, it was not read before.
    async with streaming() as (server, _, endpoint), connected(server.port) as peer:
        timed = endpoint.edge = Timed(endpoint.edge.rejected)
        peer.send(peer.head(1))
        ask(peer, 1, *[b"x"] * (rpc_stream.MAX_QUERIES + 1))
        await eventually(lambda: len(timed.asked) == rpc_stream.MAX_QUERIES, "all but one are asked")
        await eventually(lambda: server.reading > 0, "that one waits")
        await asyncio.sleep(0.1)
        before = time.monotonic()
        timed.asked[0][1].settle(answer("x"))
        assert len(timed.asked) == rpc_stream.MAX_QUERIES + 1
        assert timed.read_at[-2] < before <= timed.read_at[-1]


async def test_a_stream_that_is_held_has_time_for_the_rest_of_its_message():
    """It is not its client's fault that nothing comes."""
    async with streaming(read_s=1.5) as (server, plane, _), connected(server.port) as peer:
        peer.send(peer.head(1))
        ask(peer, 1, *[b"x"] * (rpc_stream.MAX_QUERIES + 1))
        peer.send(h2.frame(h2.DATA, 0, 1, prefixed(b"last")[:6]))
        await eventually(lambda: len(plane.asked) == rpc_stream.MAX_QUERIES, "there is no more room")
        await asyncio.sleep(2.2)
        assert server.streams == 1
        while plane.asked:
            plane.asked.pop(0)[1].settle(answer("x"))
        peer.send(h2.frame(h2.DATA, h2.END_STREAM, 1, prefixed(b"last")[6:]))
        await eventually(lambda: len(plane.asked) == 1, "it goes on")
        plane.asked[0][1].settle(answer("last"))
        assert (await received(peer, rpc_stream.MAX_QUERIES + 2))[-1].infer_response.id == "last"
        assert await status(peer, 1) == (CODE.OK, "")


async def test_others_have_their_turn_between_queries_that_are_refused_at_once():
    async with streaming() as (server, plane, _), connected(server.port) as many, connected(server.port) as other:
        count, seen = 20 * rpc_stream.MAX_QUERIES, []

        infer = plane.infer

        def noted(waits: Reply, data, *given) -> SimpleNamespace:
            seen.append(bytes(data))
            if len(seen) == 1:
                other.send(other.head(1))
                ask(other, 1, b"other")
            return infer(waits, data, *given)

        plane.infer = noted
        many.send(many.head(1), h2.window_update(0, MIB), h2.window_update(1, MIB))
        many.send(h2.frame(h2.DATA, h2.END_STREAM, 1, count * prefixed(b"wrong")))
        assert len(await received(many, count)) == count
        assert await status(many, 1) == (CODE.OK, "")
        assert len(seen) == count + 1
        assert seen.index(b"other") <= 5 * rpc_stream.MAX_QUERIES
        assert server.reading == 0


# --- errors -----------------------------------------------------------------------------------------------------------


class Full(Plane):
    def infer(self, waits: Reply, data, *given) -> SimpleNamespace:
        flight = super().infer(waits, data, *given)
        if data.startswith(b"no"):
            waits.settle(Overloaded("no room"))
        return flight


async def test_an_error_that_is_there_at_once_names_its_query():
    async with streaming() as (server, _, endpoint), connected(server.port) as peer:
        full = endpoint.edge = Full(endpoint.edge.rejected)
        peer.send(peer.head(1))
        ask(peer, 1, b"no-1", b"yes", b"no-2", b"no-3", end=True)
        await eventually(lambda: len(full.asked) == 4, "all are asked")
        full.asked[1][1].settle(answer("yes"))
        found = [(one.infer_response.id, one.error_message) for one in await received(peer, 4)]
        assert found == [("no-1", "no room"), ("yes", ""), ("no-2", "no room"), ("no-3", "no room")]
        assert await status(peer, 1) == (CODE.OK, "")
        assert (server.streams, server.reading, server.unsent) == (0, 0, 0)


async def test_no_circles_are_left_behind_streams():
    def left() -> int:
        kinds = (Call, rpc_stream._Stream, rpc_stream._StreamQuery)
        # By type, since isinstance asks proxies for their class, and what they stood for may be gone.
        return sum(type(one) in kinds for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        async with streaming() as (server, plane, _), connected(server.port) as peer:
            for number in (1, 3, 5):
                peer.send(peer.head(number))
                ask(peer, number, b"a", b"wrong", b"b", end=number < 5)
            await eventually(lambda: len(plane.asked) == 6, "all are asked")
            while len(plane.asked) > 2:
                plane.asked.pop(0)[1].settle(answer("x"))
            plane.asked.clear()
            await eventually(lambda: server.streams == 1, "two have ended")
            peer.send(h2.rst_stream(5, h2.CANCEL))
            await eventually(lambda: plane.cancelled == 2, "the third was cancelled")
            assert left() == 0
    finally:
        gc.enable()
