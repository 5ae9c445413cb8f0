"""Limits of calls over HTTP/2, together and each, and who is evicted."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import time

import grpc
import grpc.aio
import hpack
import pytest

from workers.net.grpc import Call, MessageParser
from workers.net.limits import Rate

from . import wire as h2
from .http2_client import CODE, KIB, MIB, Unplugged, connected, eventually, prefixed, serving, status, to

RATE = Rate()


async def test_all_messages_that_are_being_read_have_one_limit():
    part = prefixed(bytes(400 * KIB))[: 300 * KIB]
    frames = [part[place : place + 16 * KIB] for place in range(0, len(part), 16 * KIB)]
    async with serving(message_bytes=MIB, most_bytes=MIB) as (server, echo):
        async with connected(server.port) as one, connected(server.port) as two:
            for peer, number in ((one, 1), (two, 1), (one, 3)):
                peer.send(peer.head(number), *[h2.frame(h2.DATA, 0, number, frame) for frame in frames])
            await eventually(lambda: server.reading > 890 * KIB, "three are being read")
            # Beyond it, the connection that holds most is refused, whether it comes next or not.
            one.send(one.head(5), *[h2.frame(h2.DATA, 0, 5, frame) for frame in frames])
            too_many(await one.response(5))
            two.send(two.head(3), *[h2.frame(h2.DATA, 0, 3, frame) for frame in frames])
            too_many(await one.response(1))
            await eventually(lambda: server.reading > 890 * KIB, "the other is read")
            assert server.reading < 910 * KIB
            # Small calls go on, and so do those that it held beside.
            one.ask(7, b"small")
            assert (await one.response(7))[0] == prefixed(b"small")
            one.send(*[h2.frame(h2.DATA, 0, 3, bytes(10 * KIB))] * 9, h2.frame(h2.DATA, 0, 3, bytes(10 * KIB + 5)))
            one.send(h2.window_update(0, MIB), h2.window_update(3, MIB), h2.frame(h2.DATA, h2.END_STREAM, 3))
            assert len((await one.response(3))[0]) == 400 * KIB + 5
        await eventually(lambda: (server.reading, server.streams) == (0, 0), "who goes away leaves nothing")
        assert len(echo.gone) == 2


def too_many(response: tuple[bytes, dict[bytes, bytes]]) -> None:
    _, fields = response
    assert fields[b"grpc-status"] == b"8"
    assert fields[b"grpc-message"] == b"too many messages are being read at once; try again"
    assert fields[b"grpc-retry-pushback-ms"] == b"1000"


async def test_answers_that_nobody_takes_have_one_limit():
    async with serving(message_bytes=MIB, most_bytes=MIB) as (server, echo), connected(server.port) as peer:
        for number in (1, 3, 5):
            peer.ask(number, b"x", to("/hold"))
        await eventually(lambda: len(echo.held) == 3, "all are there")
        for call in echo.held:
            call.settle(bytes(400 * KIB))
        assert server.unsent == 800 * KIB
        # The third is given up, the others come once they are taken.
        number = (await peer.until(h2.RST_STREAM))[1]
        assert number == 5
        peer.send(h2.window_update(0, MIB), h2.window_update(1, MIB), h2.window_update(3, MIB))
        await eventually(lambda: server.unsent == 0, "all is sent")


async def test_of_answers_that_nobody_takes_the_connection_with_most_is_given_up():
    async with (
        serving(message_bytes=MIB, most_bytes=MIB) as (server, echo),
        connected(server.port) as one,
        connected(server.port) as two,
    ):
        for count, (peer, number) in enumerate(((one, 1), (one, 3), (two, 1)), 1):
            peer.ask(number, b"x", to("/hold"))
            await eventually(lambda count=count: len(echo.held) == count, "it is there")
        for call, size in zip(echo.held, (500, 400, 300), strict=True):
            call.settle(bytes(size * KIB))
        # It is the larger one's largest, though another came last.
        assert (await one.until(h2.RST_STREAM))[1] == 1
        assert server.unsent == 700 * KIB
        assert sum(connection.unsent_bytes for connection in server.connections) == server.unsent
        for peer, number in ((one, 3), (two, 1)):
            peer.send(h2.window_update(0, MIB), h2.window_update(number, MIB))
        await eventually(lambda: server.unsent == 0, "all is sent")


async def test_the_connection_with_most_calls_makes_room_for_others():
    async with contextlib.AsyncExitStack() as stack:
        server, echo = await stack.enter_async_context(serving(calls=12))
        one, two, three = [await stack.enter_async_context(connected(server.port)) for _ in range(3)]
        for peer, count in ((one, 8), (two, 4)):
            for number in range(1, 2 * count, 2):
                peer.ask(number, b"x", to("/hold"))
        await eventually(lambda: len(echo.held) == 12, "all are taken")
        # The one that has most gets none more, and is not even begun with.
        one.send(one.head(17, fields=to("/hold")))
        assert await one.until(h2.RST_STREAM) == (0, 17, struct.pack(">I", h2.REFUSED_STREAM))
        # Calls without a key take none of them.
        three.ask(1, b"alive?", to("/open"))
        assert (await three.response(1))[0] == prefixed(b"alive?")
        # Others get theirs, until all have as many.
        for number, given_up in ((3, 15), (5, 13), (7, 11)):
            three.ask(number, b"x", to("/hold"))
            assert (await status(one, given_up))[0] is CODE.RESOURCE_EXHAUSTED
        await eventually(lambda: len(echo.held) == 15 and len(echo.gone) == 3, "they are there")
        assert server.streams == 12
        three.ask(9, b"x", to("/hold"))
        assert (await status(one, 9))[0] is CODE.RESOURCE_EXHAUSTED
        three.send(three.head(11, fields=to("/hold")))
        assert (await three.until(h2.RST_STREAM))[1] == 11


def of(key: str, path: str) -> list[tuple[str, str]]:
    return [*to(path), ("authorization", key)]


async def test_the_key_with_most_calls_makes_room_however_many_connections_it_has():
    async with contextlib.AsyncExitStack() as stack:
        server, echo = await stack.enter_async_context(serving(calls=12))
        *crowd, other = [await stack.enter_async_context(connected(server.port)) for _ in range(5)]
        for i in range(8):
            crowd[i % 4].ask(1 + i // 4 * 2, b"x", of("crowd", "/hold"))
        for number in range(1, 8, 2):
            other.ask(number, b"x", of("other", "/hold"))
        await eventually(lambda: len(echo.held) == 12, "all are taken")
        # The other's connection has most calls already, but its key has fewer.
        other.ask(9, b"x", of("other", "/hold"))
        await eventually(lambda: len(echo.held) == 13 and len(echo.gone) == 1, "one of the crowd's makes room")
        assert echo.gone[0].client == "crowd"
        assert server.streams == 12


async def test_of_messages_that_are_read_the_key_with_most_is_given_up():
    frames = [h2.frame(h2.DATA, 0, 1, prefixed(bytes(MIB // 2))[: 10 * KIB]), h2.frame(h2.DATA, 0, 1, bytes(10 * KIB))]
    async with contextlib.AsyncExitStack() as stack:
        server, echo = await stack.enter_async_context(serving(message_bytes=MIB, most_bytes=100 * KIB))
        *crowd, other = [await stack.enter_async_context(connected(server.port)) for _ in range(4)]
        for peer in crowd:
            peer.send(peer.head(1, fields=of("crowd", "/echo")), *frames)
        await eventually(lambda: server.reading > 59 * KIB, "they are read")
        other.send(other.head(1, fields=of("other", "/echo")), *frames, frames[1], frames[1])
        await eventually(lambda: server.reading > 99 * KIB, "so is the other")
        other.send(frames[1])
        await eventually(lambda: echo.refusals, "one is given up")
        # One of the crowd's, though the other's connection holds most.
        assert {connection.holder for connection in server.connections if not connection.reading_bytes} == {"crowd"}
        assert server.reading > 80 * KIB


async def test_answers_that_nobody_takes_are_counted_however_much_a_client_would_take_at_once():
    settings = {h2.INITIAL_WINDOW_SIZE: h2.MAX_WINDOW, h2.MAX_FRAME_SIZE: h2.MAX_FRAME}
    async with serving(most_bytes=32 * MIB) as (server, echo), connected(server.port, settings) as peer:
        peer.send(h2.window_update(0, h2.MAX_WINDOW - h2.DEFAULT_WINDOW))
        peer.ask(1, b"x", to("/hold"))
        await eventually(lambda: echo.held, "it asks")
        peer.writer.transport.pause_reading()
        message = bytes(range(256)) * 60 * KIB
        echo.held[0].settle(message)
        await asyncio.sleep(0.1)
        assert server.unsent == len(message)
        peer.writer.transport.resume_reading()
        assert (await peer.response(1))[0] == prefixed(message)
        assert server.unsent == 0


async def test_a_server_that_stops_waits_for_answers_to_be_taken():
    settings = {h2.INITIAL_WINDOW_SIZE: h2.MAX_WINDOW, h2.MAX_FRAME_SIZE: h2.MAX_FRAME}
    async with serving() as (server, echo), connected(server.port, settings) as peer:
        peer.send(h2.window_update(0, h2.MAX_WINDOW - h2.DEFAULT_WINDOW))
        peer.ask(1, b"x", to("/hold"))
        await eventually(lambda: echo.held, "it asks")
        ends = [peer.writer.transport, *(connection._transport for connection in server.connections)]
        for end, option in zip(ends, (socket.SO_RCVBUF, socket.SO_SNDBUF), strict=True):
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 8 * KIB)
        peer.writer.transport.pause_reading()
        message = bytes(250 * KIB)
        echo.held[0].settle(message)
        assert (server.streams, server.unsent) == (0, 0)
        stopping = asyncio.create_task(server.drain(120.0))
        await asyncio.sleep(0.1)
        assert not stopping.done()
        peer.writer.transport.resume_reading()
        assert (await peer.response(1))[0] == prefixed(message)
        await asyncio.wait_for(stopping, 60)


async def test_a_real_client_loses_no_call_while_its_server_stops():
    # It has another address. Calls that begin while GOAWAY is on its way are answered by the server that stops.
    for _ in range(5):
        async with serving(announce_s=300.0) as (first, _), serving() as (second, echo):
            target = f"ipv4:127.0.0.1:{first.port},127.0.0.1:{second.port}"
            async with grpc.aio.insecure_channel(target) as channel:
                ask = channel.unary_unary("/echo")
                assert await ask(b"x") == b"x" and not echo.got

                async def calls() -> None:
                    while not echo.got:
                        await ask(b"x")  # noqa: B023

                asking = asyncio.gather(*(calls() for _ in range(20)))
                await asyncio.sleep(0)
                await first.drain(300)
                await first.close()
                await asking


class Passing(Unplugged):
    """A client's connection whose time passes as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: dict[int, int] | None = None, **limits):
        self.now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        super().__init__(**limits)
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.connection.data_received(h2.PREFACE + h2.settings(settings or {}))

    def call(self, number: int, path: str, data: bytes, flags: int = 0) -> None:
        head = h2.frame(h2.HEADERS, h2.END_HEADERS, number, self.encoder.encode(to(path)))
        self.connection.data_received(head + h2.frame(h2.DATA, flags, number, data))

    def trickle(self, number: int, *pieces: bytes) -> None:
        """Send data, a piece each second; the server's sweeps come as often."""
        for piece in pieces:
            self.now += 1.0
            self.connection.data_received(h2.frame(h2.DATA, 0, number, piece))
            self.server.sweep(self.now)

    def ended(self) -> dict[int, bytes | int]:
        """Messages of calls that ended in errors, or the codes of their resets, since the last look."""
        out, found = bytes(self.transport.out), {}
        self.transport.out.clear()
        while out:
            length, kind, flags, number = h2.parse_header(out)
            payload, out = out[h2.HEADER_BYTES : h2.HEADER_BYTES + length], out[h2.HEADER_BYTES + length :]
            if kind == h2.HEADERS:
                fields = dict(self.decoder.decode(payload, raw=True))
                if flags & h2.END_STREAM:
                    found[number] = fields[b"grpc-message"]
            elif kind == h2.RST_STREAM and (code := int.from_bytes(payload)) != h2.NO_ERROR:
                found[number] = code
        return found


CUT_OFF = prefixed(b"abc")[:6]


def test_a_message_that_does_not_go_on_is_given_up(monkeypatch):
    peer = Passing(monkeypatch)
    peer.call(1, "/echo", CUT_OFF)
    peer.call(3, "/streams", b"")
    peer.call(5, "/streams", CUT_OFF)
    peer.call(7, "/hold", prefixed(b"x"), h2.END_STREAM)
    # Empty frames are no progress.
    peer.trickle(1, *[b""] * 29)
    assert not peer.ended()
    peer.trickle(1, b"", b"")
    assert peer.ended() == dict.fromkeys((1, 5), b"message: nothing arrived for 30 s")
    # A stream between its messages, and a call that waits for its answer, have all the time that they like.
    assert list(peer.connection.streams) == [3, 7]


def test_the_message_of_a_call_that_takes_one_has_only_so_long(monkeypatch):
    peer = Passing(monkeypatch, message_s=20.0)
    peer.call(1, "/echo", prefixed(bytes(20_000))[:6])
    peer.trickle(1, *[b"a"] * 21)
    assert peer.ended() == {1: b"message: must have come within 20 s"}
    # Those of a stream have no such time in all.
    peer.call(3, "/streams", b"")
    peer.trickle(3, *[prefixed(b"abc")] * 60)
    assert (peer.ended(), peer.left) == ({}, (1, 0, 0))


@pytest.mark.parametrize("path", ["/echo", "/streams"])
def test_a_message_must_come_with_a_least_rate(monkeypatch, path):
    peer = Passing(monkeypatch)
    peer.call(1, path, prefixed(bytes(100_000))[:16_000])
    peer.trickle(1, *[b"a"] * 31)
    assert peer.ended() == {1: b"message: at least 4096 bytes/s on average over 30 s"}
    assert peer.left == (0, 0, 0)


def test_the_rate_of_messages_is_that_of_the_last_period():
    messages, now, rate = MessageParser(10 * MIB, RATE), 100.0, RATE.bytes_per_s
    messages.feed(prefixed(bytes(8 * MIB))[: 4 * MIB])
    assert not messages.slow(now)
    assert not messages.slow(now + RATE.period_s)
    # Earlier bytes are no credit.
    now += RATE.period_s
    assert not messages.slow(now + RATE.period_s - 1)
    assert messages.slow(now + RATE.period_s)
    for _ in range(3):
        now += RATE.period_s
        messages.feed(bytes(int(rate * RATE.period_s)))
        assert not messages.slow(now + RATE.period_s)
    # A stream that is to wait begins anew.
    messages.pause()
    assert not messages.slow(now + 10 * RATE.period_s)


def test_a_call_without_a_key_has_only_so_long(monkeypatch):
    peer = Passing(monkeypatch, {h2.INITIAL_WINDOW_SIZE: 4})
    peer.call(1, "/open", prefixed(bytes(60))[:6])
    # Nor does it stay where its answer is not taken.
    peer.call(3, "/open", prefixed(b"alive?"), h2.END_STREAM)
    peer.trickle(1, *[b"a"] * 11)
    assert peer.ended() == {1: b"message: must have come within 10 s", 3: h2.ENHANCE_YOUR_CALM}
    assert (*peer.left, len(peer.server._public)) == (0, 0, 0, 0)


async def test_calls_without_a_key_take_the_place_of_older_ones_and_no_room_of_others():
    async with (
        serving(most_bytes=1, public_calls=10) as (server, _),
        connected(server.port) as one,
        connected(server.port) as two,
    ):
        for number in range(1, 31, 2):
            one.send(one.head(number, fields=to("/open")), h2.frame(h2.DATA, 0, number, prefixed(bytes(60))[:60]))
        for number in range(1, 11, 2):
            assert (await status(one, number))[0] is CODE.RESOURCE_EXHAUSTED
        await eventually(lambda: server.streams == 10, "the latest are left")
        assert server.reading == 0
        two.ask(1, b"alive?", to("/open"))
        assert (await two.response(1))[0] == prefixed(b"alive?")
        assert (await status(one, 11))[0] is CODE.RESOURCE_EXHAUSTED
        one.send(h2.frame(h2.DATA, h2.END_STREAM, 13, bytes(5)))
        assert (await one.response(13))[0] == prefixed(bytes(60))
    await eventually(lambda: (server.streams, len(server._public)) == (0, 0), "nothing is left")


def test_an_answer_that_is_not_taken_is_given_up(monkeypatch):
    peer = Passing(monkeypatch, {h2.INITIAL_WINDOW_SIZE: 4})
    peer.call(1, "/echo", prefixed(b"a" * 100), h2.END_STREAM)
    peer.now += 121.0
    peer.server.sweep(peer.now)
    assert (peer.ended(), peer.left) == ({1: h2.CANCEL}, (0, 0, 0))


async def test_a_client_that_reads_nothing_is_read_no_further():
    async with (
        serving(message_bytes=MIB, most_bytes=64 * MIB) as (server, echo),
        connected(server.port, {h2.INITIAL_WINDOW_SIZE: h2.MAX_WINDOW}) as peer,
    ):
        peer.send(h2.window_update(0, h2.MAX_WINDOW - h2.DEFAULT_WINDOW))
        peer.writer.transport.pause_reading()
        body = prefixed(bytes(200 * KIB))
        for number in range(1, 400, 2):
            peer.send(peer.head(number))
            for place in range(0, len(body), 16 * KIB):
                piece = body[place : place + 16 * KIB]
                peer.send(h2.frame(h2.DATA, h2.END_STREAM * (place + 16 * KIB >= len(body)), number, piece))
            if number > 40:
                await asyncio.sleep(0.005)
        answered, quiet = -1, 0
        # Each look lets the loop do all that is ready, however slow the machine is.
        while quiet < 50:
            quiet = quiet + 1 if answered == len(echo.got) else 0
            answered = len(echo.got)
            await asyncio.sleep(0.005)
        assert 0 < answered < 150
        peer.writer.transport.abort()


async def test_no_circles_are_left_behind_calls():
    def left() -> int:
        return sum(type(one) is Call for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        async with serving() as (server, echo), connected(server.port) as peer:
            peer.ask(1, b"x")
            peer.ask(3, b"x", to("/nothing"))
            peer.ask(5, b"x", to("/hold"))
            peer.send(peer.head(7), h2.frame(h2.DATA, h2.END_STREAM, 7, b"\7not a message"))
            for number in (1, 3, 7):
                await peer.response(number)
            peer.send(h2.rst_stream(5, h2.CANCEL))
            await eventually(lambda: len(echo.gone) == 1, "it was cancelled")
            for kept in (echo.gone, echo.held, echo.refusals):
                kept.clear()
            assert left() == 0
    finally:
        gc.enable()
