"""Broken HTTP/2.

An error ends the stream or the connection that it concerns, and no other.
"""

from __future__ import annotations

import asyncio
import struct

import hpack
import pytest

from workers.net.limits import Http2Limits

from . import wire as h2
from .http2_client import HEAD, Peer, connected, eventually, prefixed, serving, still_serves

U32 = struct.Struct(">I").pack
#: floods stay short, so that a busy machine reads them within a second
LIMITS = Http2Limits(control_frames_per_s=2_000)


BROKEN = {
    "settings do not come first": (h2.PREFACE + h2.frame(h2.PING, 0, 0, bytes(8)), h2.PROTOCOL_ERROR),
    "data before settings": (h2.PREFACE + h2.frame(h2.DATA, 0, 1, b"x"), h2.PROTOCOL_ERROR),
    "another protocol": (b"GET / HTTP/1.1\r\nHost: test\r\n\r\n", h2.PROTOCOL_ERROR),
}
GREETED = {
    "data on no stream": (h2.frame(h2.DATA, 0, 0, b"x"), h2.PROTOCOL_ERROR),
    "data on a stream that is not open": (h2.frame(h2.DATA, 0, 5, b"x"), h2.PROTOCOL_ERROR),
    "data on a stream of the server's": (h2.frame(h2.DATA, 0, 2, b"x"), h2.PROTOCOL_ERROR),
    "a frame that is too large": (h2.header(h2.DEFAULT_FRAME + 1, h2.HEADERS, 0, 1), h2.FRAME_SIZE_ERROR),
    "data that is too large": (h2.header(LIMITS.data_frame_bytes + 1, h2.DATA, 0, 1), h2.FRAME_SIZE_ERROR),
    "headers on no stream": (h2.frame(h2.HEADERS, h2.END_HEADERS, 0, b"\x82"), h2.PROTOCOL_ERROR),
    "headers on a stream of the server's": (h2.frame(h2.HEADERS, h2.END_HEADERS, 2, b"\x82"), h2.PROTOCOL_ERROR),
    "headers that cannot be unpacked": (
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff\xff\xff\xff"),
        h2.COMPRESSION_ERROR,
    ),
    "headers of a table entry that is not there": (
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xc8"),
        h2.COMPRESSION_ERROR,
    ),
    "headers with something in between": (
        h2.frame(h2.HEADERS, 0, 1, b"\x82") + h2.frame(h2.PING, 0, 0, bytes(8)),
        h2.PROTOCOL_ERROR,
    ),
    "headers that go on in another stream": (
        h2.frame(h2.HEADERS, 0, 1, b"\x82") + h2.frame(h2.CONTINUATION, h2.END_HEADERS, 3, b"\x82"),
        h2.PROTOCOL_ERROR,
    ),
    "headers that never end": (
        h2.frame(h2.HEADERS, 0, 1, b"\x82") + 3 * h2.frame(h2.CONTINUATION, 0, 1, bytes(8000)),
        h2.ENHANCE_YOUR_CALM,
    ),
    "headers in frames without any": (
        h2.frame(h2.HEADERS, 0, 1, b"\x82") + h2.frame(h2.CONTINUATION, 0, 1),
        h2.ENHANCE_YOUR_CALM,
    ),
    "headers that grow when unpacked": (
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, hpack.Encoder().encode([("a" * 3000, "")]) + b"\xbe" * 9),
        h2.ENHANCE_YOUR_CALM,
    ),
    "a continuation of nothing": (h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, b""), h2.PROTOCOL_ERROR),
    "more padding than frame": (h2.frame(h2.HEADERS, h2.PADDED, 1, b"\x09ab"), h2.PROTOCOL_ERROR),
    "a priority that is cut off": (h2.frame(h2.HEADERS, h2.WITH_PRIORITY, 1, b"ab"), h2.FRAME_SIZE_ERROR),
    "a stream that depends on itself": (h2.frame(h2.PRIORITY, 0, 3, U32(3) + b"\0"), h2.PROTOCOL_ERROR),
    "a reset of a stream that is not open": (h2.rst_stream(7, h2.CANCEL), h2.PROTOCOL_ERROR),
    "a reset that is cut off": (h2.frame(h2.RST_STREAM, 0, 1, b"ab"), h2.FRAME_SIZE_ERROR),
    "a ping that is cut off": (h2.frame(h2.PING, 0, 0, b"ab"), h2.FRAME_SIZE_ERROR),
    "a ping on a stream": (h2.frame(h2.PING, 0, 1, bytes(8)), h2.PROTOCOL_ERROR),
    "a push": (h2.frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, U32(2)), h2.PROTOCOL_ERROR),
    "settings on a stream": (h2.frame(h2.SETTINGS, 0, 1), h2.PROTOCOL_ERROR),
    "settings that are cut off": (h2.frame(h2.SETTINGS, 0, 0, b"abc"), h2.FRAME_SIZE_ERROR),
    "an acknowledgement that says something": (h2.frame(h2.SETTINGS, h2.ACK, 0, bytes(6)), h2.FRAME_SIZE_ERROR),
    "a window that is too large at first": (h2.settings({h2.INITIAL_WINDOW_SIZE: 1 << 31}), h2.FLOW_CONTROL_ERROR),
    "frames that are too small": (h2.settings({h2.MAX_FRAME_SIZE: 100}), h2.PROTOCOL_ERROR),
    "a push that is a number": (h2.settings({h2.ENABLE_PUSH: 2}), h2.PROTOCOL_ERROR),
    "no more window": (h2.window_update(0, 0), h2.PROTOCOL_ERROR),
    "too much window": (h2.window_update(0, h2.MAX_WINDOW), h2.FLOW_CONTROL_ERROR),
    "window for a stream that is not open": (h2.window_update(5, 1), h2.PROTOCOL_ERROR),
    "a flood of settings": (h2.settings(dict.fromkeys(range(100, 2100), 1)) * 11, h2.ENHANCE_YOUR_CALM),
    "a flood of empty data behind a stream's end": (
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, hpack.Encoder().encode([*HEAD[:2], (":path", "/no"), *HEAD[3:]]))
        + h2.frame(h2.DATA, 0, 1) * (3 * LIMITS.control_frames_per_s),
        h2.ENHANCE_YOUR_CALM,
    ),
    "a flood of pings": (h2.frame(h2.PING, 0, 0, bytes(8)) * (LIMITS.control_frames_per_s + 1), h2.ENHANCE_YOUR_CALM),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_no_http2_is_hung_up_on(name):
    data, code = BROKEN[name]
    async with serving() as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        peer = Peer(reader, writer)
        peer.send(data)
        assert (await peer.ended())[0] == code
        writer.close()


@pytest.mark.parametrize("name", GREETED)
async def test_who_breaks_the_protocol_receives_the_reason_and_nobody_else_notices(name):
    data, code = GREETED[name]
    async with serving(http2=LIMITS) as (server, _), connected(server.port) as other:
        await still_serves(other, 1)
        async with connected(server.port) as peer:
            peer.send(data)
            found, words = await peer.ended()
            assert (found, bool(words)) == (code, True)
        await still_serves(other, 3)
        assert (server.streams, server.reading) == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        [*HEAD[1:]],
        [*HEAD, (":path", "/echo")],
        [*HEAD[:2], *HEAD[3:]],
        [*HEAD, ("connection", "close")],
        [*HEAD, ("te", "gzip")],
        [*HEAD, ("Upper", "1")],
        [(":status", "200"), *HEAD],
    ],
    ids=["no method", "two paths", "no path", "of a connection", "te", "upper case", "a response's"],
)
async def test_a_head_that_no_request_may_have_ends_its_stream_alone(fields):
    async with serving() as (server, echo), connected(server.port) as peer:
        peer.send(peer.head(1, h2.END_HEADERS | h2.END_STREAM, fields))
        assert await peer.until(h2.RST_STREAM) == (0, 1, U32(h2.PROTOCOL_ERROR))
        await still_serves(peer, 3)
        assert echo.got == [b"still there?"]


async def test_who_sends_more_than_a_window_is_hung_up_on():
    async with serving(message_bytes=1 << 24, most_bytes=1 << 26) as (server, _), connected(server.port) as peer:
        fields = [(name, "/streams" if name == ":path" else value) for name, value in HEAD]
        peer.send(peer.head(1, fields=fields))
        await eventually(lambda: server.streams == 1, "it is open")
        (connection,) = server.connections
        connection.streams[1].held = True
        # A held stream's client gets no room, so this is all that it may send.
        part = h2.frame(h2.DATA, 0, 1, prefixed(bytes(1 << 23))[: 1 << 14])
        peer.send(part * (LIMITS.stream_window_bytes >> 14))
        await eventually(lambda: server.reading > LIMITS.stream_window_bytes - (1 << 14), "all of it is there")
        peer.send(h2.frame(h2.DATA, 0, 1, b"x"))
        assert (await peer.ended())[0] == h2.FLOW_CONTROL_ERROR
        await eventually(lambda: server.streams == server.reading == 0, "nothing is left of it")


async def test_data_behind_a_stream_s_end():
    async with serving() as (server, _), connected(server.port) as peer:
        fields = [(name, "/hold" if name == ":path" else value) for name, value in HEAD]
        peer.ask(1, b"x", fields)
        peer.send(h2.frame(h2.DATA, 0, 1, b"y"))
        assert (await peer.ended())[0] == h2.STREAM_CLOSED


async def test_what_comes_for_a_stream_that_was_answered_is_ignored():
    async with serving() as (server, _), connected(server.port) as peer:
        nothing = [(name, "/nothing" if name == ":path" else value) for name, value in HEAD]
        peer.send(peer.head(1, fields=nothing))
        _, fields = await peer.response(1)
        assert fields[b"grpc-status"] == b"12"
        # The client learns that the rest is of no use, and may have sent some of it.
        assert await peer.until(h2.RST_STREAM) == (0, 1, U32(h2.NO_ERROR))
        peer.send(
            h2.frame(h2.DATA, 0, 1, bytes(1000)),
            h2.window_update(1, 5),
            peer.head(1, h2.END_HEADERS | h2.END_STREAM, [("x", "y")]),
            h2.rst_stream(1, h2.CANCEL),
        )
        await still_serves(peer, 3)


async def test_more_streams_than_there_may_be_are_refused_one_by_one():
    async with serving(http2=Http2Limits(streams=3)) as (server, echo), connected(server.port) as peer:
        fields = [(name, "/hold" if name == ":path" else value) for name, value in HEAD]
        for number in (1, 3, 5, 7):
            peer.ask(number, b"x", fields)
        assert await peer.until(h2.RST_STREAM) == (0, 7, U32(h2.REFUSED_STREAM))
        for call in echo.held:
            call.answer(b"y")
        await still_serves(peer, 9)


async def test_a_client_that_is_gone_is_noticed_by_its_silence():
    limits = Http2Limits(keepalive_s=0.5, keepalive_timeout_s=1.0)
    async with serving(http2=limits) as (server, echo), connected(server.port) as peer:
        peer.ask(1, b"x", [(name, "/hold" if name == ":path" else value) for name, value in HEAD])
        flags, _, payload = await peer.until(h2.PING)
        assert not flags
        peer.send(h2.frame(h2.PING, h2.ACK, 0, payload))
        assert not (await peer.until(h2.PING))[0]
        # This one is not answered.
        await eventually(lambda: not server.connections, "it is given up")
        assert (echo.gone, server.streams) == (echo.held, 0)


async def test_greetings_and_heads_that_do_not_end_are_given_up():
    async with (
        serving(http2=Http2Limits(handshake_s=0.5)) as (server, _),
        connected(server.port) as good,
        connected(server.port) as half,
    ):
        _, silent = await asyncio.open_connection("127.0.0.1", server.port)
        silent.write(h2.PREFACE[:5])
        half.send(h2.frame(h2.HEADERS, 0, 1, half.encoder.encode(HEAD)))
        assert (await half.ended())[0] == h2.ENHANCE_YOUR_CALM
        await eventually(lambda: len(server.connections) == 1, "only the one that was greeted is left")
        await still_serves(good, 1)
        silent.close()
