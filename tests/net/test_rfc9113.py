"""HTTP/2 by the sections of RFC 9113, as far as they bind a server."""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
from dataclasses import dataclass

import hpack
import pytest
from hyperframe.frame import ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame, PingFrame, PriorityFrame

from workers.net.limits import Http2Limits

from . import wire
from .http2_client import HEAD, Peer, connected, prefixed, serving, to

END, HEADERS_END, BOTH = wire.END_STREAM, wire.END_HEADERS, wire.END_STREAM | wire.END_HEADERS
HOLD = to("/hold")
BLOCK = hpack.Encoder().encode(HEAD)
PING_ACK = PingFrame(0, b"12345678", flags=["ACK"]).serialize()


@dataclass(frozen=True)
class Case:
    name: str
    data: bytes
    goaway: int | None = None
    reset: int | None = None
    answer: bytes | None = None


def headers(number: int, fields=HEAD, flags: int = HEADERS_END) -> bytes:
    """A request's, with literals only, so that cases share no table."""
    block = b"".join(literal(*field) for field in fields)
    return wire.frame(wire.HEADERS, flags, number, block)


def literal(name: str | bytes, value: str | bytes) -> bytes:
    name, value = (text.encode() if isinstance(text, str) else text for text in (name, value))
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def call(number: int, *more: tuple, body: bytes = b"x") -> bytes:
    return headers(number, [*HEAD, *more]) + data(number, prefixed(body), END)


def data(number: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return wire.frame(wire.DATA, flags, number, payload)


def priority(number: int, payload: bytes = bytes(5)) -> bytes:
    return wire.frame(wire.PRIORITY, 0, number, payload)


def with_fields(*fields: tuple) -> list[tuple]:
    """A request's fields, some replaced (or left out: None), others added."""
    replaced = dict(fields)
    kept = [(name, replaced.pop(name, value)) for name, value in HEAD]
    return [(name, value) for name, value in [*kept, *replaced.items()] if value is not None]


def goaway(name: str, code: int, *data: bytes) -> Case:
    return Case(name, b"".join(data), goaway=code)


def reset(name: str, code: int, *data: bytes) -> Case:
    return Case(name, b"".join(data), reset=code)


def answered(name: str, *data: bytes, body: bytes = b"x") -> Case:
    return Case(name, b"".join(data), answer=prefixed(body))


def malformed(name: str, *fields: tuple) -> Case:
    return reset(name, wire.PROTOCOL_ERROR, headers(1, with_fields(*fields), BOTH))


PROTOCOL, FRAME_SIZE = wire.PROTOCOL_ERROR, wire.FRAME_SIZE_ERROR
FLOW, CLOSED = wire.FLOW_CONTROL_ERROR, wire.STREAM_CLOSED
CALM, COMPRESSION = wire.ENHANCE_YOUR_CALM, wire.COMPRESSION_ERROR
U32 = struct.Struct(">I").pack
#: floods stay short, so that a busy machine reads them within a second
LIMITS = Http2Limits(control_frames_per_s=2_000)

SECTIONS: dict[str, list[Case]] = {
    "4.1 frame format": [
        answered("frames of unknown types are ignored", wire.frame(0x42, 0xFF, 0, b"?" * 100), call(1)),
        answered("unknown flags are ignored", wire.frame(wire.PING, 0x16, 0, bytes(8)), call(1)),
        answered("the reserved bit is ignored", wire.frame(wire.PING, 0, 1 << 31, bytes(8)), call(1)),
    ],
    "4.2 frame size": [
        answered(
            "data of 2^14 bytes",
            headers(1),
            data(1, prefixed(bytes(20_000))[: 1 << 14]),
            data(1, prefixed(bytes(20_000))[1 << 14 :], END),
            body=bytes(20_000),
        ),
        goaway(
            "data beyond the announced size", FRAME_SIZE, headers(1), wire.header(LIMITS.data_frame_bytes + 1, 0, 0, 1)
        ),
        goaway("headers beyond it", FRAME_SIZE, wire.header(LIMITS.data_frame_bytes + 1, wire.HEADERS, 0, 1)),
        goaway("settings beyond it", FRAME_SIZE, wire.header(LIMITS.data_frame_bytes + 1, wire.SETTINGS, 0, 0)),
    ],
    "4.3 field section compression": [
        goaway("a block that cannot be decoded", COMPRESSION, wire.frame(wire.HEADERS, BOTH, 1, b"\xff\xff\xff\xff")),
        goaway("a table entry that is not there", COMPRESSION, wire.frame(wire.HEADERS, BOTH, 1, b"\xc8")),
        goaway("a name that is cut off", COMPRESSION, wire.frame(wire.HEADERS, BOTH, 1, b"\x00\x04na")),
        goaway("PRIORITY within a block", PROTOCOL, headers(1, flags=0), PriorityFrame(1, 0, 1).serialize()),
        goaway("HEADERS of another stream within a block", PROTOCOL, headers(1, flags=0), headers(3)),
        goaway("DATA within a block", PROTOCOL, headers(1, flags=0), data(1, b"x")),
    ],
    "5.1 stream states": [
        goaway("idle: DATA", PROTOCOL, data(1, b"x", END)),
        goaway("idle: RST_STREAM", PROTOCOL, wire.rst_stream(1, wire.CANCEL)),
        goaway("idle: WINDOW_UPDATE", PROTOCOL, wire.window_update(1, 100)),
        goaway("idle: CONTINUATION", PROTOCOL, ContinuationFrame(1, BLOCK, flags=["END_HEADERS"]).serialize()),
        answered("idle: PRIORITY", priority(9), call(1)),
        goaway(
            "half-closed: DATA",
            CLOSED,
            headers(1, HOLD, BOTH - END),
            data(1, prefixed(b""), END),
            DataFrame(1, b"x").serialize(),
        ),
        goaway("half-closed: HEADERS", CLOSED, headers(1, HOLD), data(1, prefixed(b""), END), headers(1, flags=BOTH)),
        answered("half-closed: WINDOW_UPDATE and PRIORITY", call(1), wire.window_update(1, 5), priority(1)),
        answered(
            "closed: RST_STREAM, WINDOW_UPDATE and PRIORITY",
            call(1),
            wire.rst_stream(1, 8),
            wire.window_update(1, 5),
            priority(1),
            call(3),
        ),
        answered("closed by a reset: DATA on its way", headers(1), wire.rst_stream(1, 8), data(1, b"late"), call(3)),
    ],
    "5.1.1 stream identifiers": [
        goaway("the server's, with DATA", PROTOCOL, data(2, b"x")),
        goaway("an even one", PROTOCOL, headers(2, flags=BOTH)),
        goaway("one that was used", PROTOCOL, call(1), call(3), headers(1, flags=BOTH)),
        goaway("one that was skipped", PROTOCOL, call(5), headers(3, flags=BOTH)),
    ],
    "5.4.1 connection errors": [
        goaway("GOAWAY tells the last stream", PROTOCOL, call(1), wire.frame(wire.PING, 0, 1, bytes(8)))
    ],
    "5.5 extensions": [
        answered("unknown settings are ignored", wire.settings({0x9999: 7}), call(1)),
        goaway("an unknown frame within a block", PROTOCOL, headers(1, flags=0), wire.frame(0x42, 0, 1, b"?")),
    ],
    "6.1 DATA": [
        goaway("on stream 0", PROTOCOL, data(0, b"x")),
        goaway("padding as long as the frame", PROTOCOL, headers(1), data(1, b"\x05abcd", wire.PADDED)),
        goaway("no pad length", PROTOCOL, headers(1), data(1, b"", wire.PADDED)),
        answered(
            "padded",
            headers(1),
            DataFrame(1, prefixed(b"x"), pad_length=255, flags=["PADDED", "END_STREAM"]).serialize(),
        ),
    ],
    "6.2 HEADERS": [
        goaway("on stream 0", PROTOCOL, headers(0, flags=BOTH)),
        goaway("padding as long as the frame", PROTOCOL, wire.frame(wire.HEADERS, BOTH | wire.PADDED, 1, b"\x09ab")),
        goaway("cut off in its priority", FRAME_SIZE, wire.frame(wire.HEADERS, BOTH | wire.WITH_PRIORITY, 1, b"ab")),
        answered(
            "padded, with priority",
            HeadersFrame(1, BLOCK, pad_length=9, depends_on=0, flags=["PADDED", "PRIORITY", "END_HEADERS"]).serialize(),
            data(1, prefixed(b"x"), END),
        ),
    ],
    "6.3 PRIORITY": [
        goaway("on stream 0", PROTOCOL, priority(0)),
        goaway("of 4 bytes", FRAME_SIZE, priority(1, bytes(4))),
        goaway("on itself", PROTOCOL, priority(3, U32(3) + b"\0")),
    ],
    "6.4 RST_STREAM": [
        goaway("on stream 0", PROTOCOL, wire.rst_stream(0, 8)),
        goaway("of 3 bytes", FRAME_SIZE, headers(1), wire.frame(wire.RST_STREAM, 0, 1, bytes(3))),
    ],
    "6.5 SETTINGS": [
        goaway("an acknowledgement with a payload", FRAME_SIZE, wire.frame(wire.SETTINGS, wire.ACK, 0, bytes(6))),
        goaway("on a stream", PROTOCOL, wire.frame(wire.SETTINGS, 0, 1)),
        goaway("of 7 bytes", FRAME_SIZE, wire.frame(wire.SETTINGS, 0, 0, bytes(7))),
        answered("without any", wire.settings({}), call(1)),
    ],
    "6.5.2 defined settings": [
        goaway("ENABLE_PUSH of 2", PROTOCOL, wire.settings({wire.ENABLE_PUSH: 2})),
        goaway("INITIAL_WINDOW_SIZE of 2^31", FLOW, wire.settings({wire.INITIAL_WINDOW_SIZE: 1 << 31})),
        goaway("MAX_FRAME_SIZE of 2^14 - 1", PROTOCOL, wire.settings({wire.MAX_FRAME_SIZE: (1 << 14) - 1})),
        goaway("MAX_FRAME_SIZE of 2^24", PROTOCOL, wire.settings({wire.MAX_FRAME_SIZE: 1 << 24})),
        answered(
            "the largest ones", wire.settings({1: 0, 2: 0, 3: 0, 4: wire.MAX_WINDOW, 5: wire.MAX_FRAME, 6: 0}), call(1)
        ),
    ],
    "6.6 PUSH_PROMISE": [goaway("from a client", PROTOCOL, headers(1), wire.frame(wire.PUSH_PROMISE, 4, 1, U32(2)))],
    "6.7 PING": [
        goaway("on a stream", PROTOCOL, wire.frame(wire.PING, 0, 1, bytes(8))),
        goaway("of 6 bytes", FRAME_SIZE, wire.frame(wire.PING, 0, 0, bytes(6))),
        answered("an acknowledgement nobody asked for", PING_ACK, call(1)),
    ],
    "6.8 GOAWAY": [
        goaway("on a stream", PROTOCOL, wire.frame(wire.GOAWAY, 0, 1, bytes(8))),
        answered("is no reason to stop", GoAwayFrame(0, 0, 0, b"bye").serialize(), call(1)),
    ],
    "6.9 WINDOW_UPDATE": [
        goaway("by 0 on the connection", PROTOCOL, wire.window_update(0, 0)),
        reset("by 0 on a stream", PROTOCOL, headers(1), wire.window_update(1, 0)),
        goaway("of 3 bytes", FRAME_SIZE, wire.frame(wire.WINDOW_UPDATE, 0, 0, bytes(3))),
    ],
    "6.9.1 the flow-control window": [
        goaway("beyond 2^31 - 1 on the connection", FLOW, wire.window_update(0, wire.MAX_WINDOW)),
        reset("beyond 2^31 - 1 on a stream", FLOW, headers(1), wire.window_update(1, wire.MAX_WINDOW)),
    ],
    "6.9.2 initial window size": [
        goaway(
            "beyond 2^31 - 1 on an open stream",
            FLOW,
            headers(1, HOLD),
            wire.window_update(1, wire.MAX_WINDOW - 65_535),
            wire.settings({4: 65_536}),
        )
    ],
    "6.10 CONTINUATION": [
        answered(
            "any number of them",
            wire.frame(wire.HEADERS, 0, 1, BLOCK[:1]),
            *[ContinuationFrame(1, BLOCK[i : i + 1]).serialize() for i in range(1, len(BLOCK) - 1)],
            ContinuationFrame(1, BLOCK[-1:], flags=["END_HEADERS"]).serialize(),
            data(1, prefixed(b"x"), END),
        ),
        goaway("behind END_HEADERS", PROTOCOL, headers(1), ContinuationFrame(1, b"").serialize()),
        goaway("on stream 0", PROTOCOL, headers(1, flags=0), wire.frame(wire.CONTINUATION, 4, 0, b"")),
        goaway("of another stream", PROTOCOL, headers(1, flags=0), ContinuationFrame(3, b"").serialize()),
    ],
    "7 error codes": [
        answered("unknown ones in RST_STREAM", headers(1), wire.rst_stream(1, 0xABC), call(3)),
        answered("unknown ones in GOAWAY", GoAwayFrame(0, 0, 0xABC).serialize(), call(1)),
    ],
    "8.1 message framing": [
        goaway("a second HEADERS without END_STREAM", PROTOCOL, headers(1), headers(1, [("x", "y")])),
        answered("trailers", headers(1), data(1, prefixed(b"x")), headers(1, [("x-sum", "1")], BOTH)),
        reset("trailers like a request's headers", PROTOCOL, headers(1), headers(1, flags=BOTH)),
    ],
    "8.1.1 malformed messages": [
        answered("content-length as data", call(1, ("content-length", "6"))),
        reset("content-length beyond data", PROTOCOL, call(1, ("content-length", "7"))),
        reset("content-length below data", PROTOCOL, call(1, ("content-length", "5"))),
        reset("content-length without data", PROTOCOL, headers(1, [*HEAD, ("content-length", "1")], BOTH)),
        reset("content-length that is no number", PROTOCOL, call(1, ("content-length", "-6"))),
        reset(
            "content-length beyond data before trailers",
            PROTOCOL,
            headers(1, [*HEAD, ("content-length", "9")]),
            data(1, prefixed(b"x")),
            headers(1, [("x", "y")], BOTH),
        ),
    ],
    "8.2.1 field validity": [
        malformed("a name in upper case", ("X-Test", "1")),
        malformed("a name with a space", ("x test", "1")),
        malformed("a name with a colon", ("x:test", "1")),
        malformed("a name beyond ASCII", ("x-\u00e9", "1")),
        malformed("an empty name", ("", "1")),
        *[malformed(f"a value with {byte!r}", ("x", b"a" + byte + b"b")) for byte in (b"\0", b"\r", b"\n")],
        *[malformed(f"a value with a space around it: {text!r}", ("x", text)) for text in (" a", "a ", "\ta", "a\t")],
        answered("any other byte in a value", call(1, ("x", bytes(range(0x20, 0x7F)).strip() + b"\x80\xff"))),
    ],
    "8.2.2 connection-specific fields": [
        *[
            malformed(name, (name, "x"))
            for name in ("connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade")
        ],
        malformed("te other than trailers", ("te", "gzip")),
        answered("te: trailers", call(1)),
    ],
    "8.3 control data": [
        malformed("an unknown pseudo-header field", (":test", "1")),
        malformed("a response's", (":status", "200")),
        reset("behind a regular field", PROTOCOL, headers(1, [("x", "1"), *HEAD], BOTH)),
    ],
    "8.3.1 request pseudo-header fields": [
        *[malformed(f"no {name}", (name, None)) for name in (":method", ":scheme", ":path")],
        malformed("an empty :path", (":path", "")),
        *[
            reset(f"two {name}", PROTOCOL, headers(1, [HEAD[place], *HEAD], BOTH))
            for place, name in enumerate((":method", ":scheme", ":path"))
        ],
        answered("no :authority", headers(1, with_fields((":authority", None))), data(1, prefixed(b"x"), END)),
    ],
    "10.5 denial of service": [
        goaway("a flood of SETTINGS", CALM, wire.settings({}) * (LIMITS.control_frames_per_s + 1)),
        goaway("a flood of settings", CALM, wire.settings(dict.fromkeys(range(100, 2100), 1)) * 11),
        goaway(
            "a flood of empty DATA behind a stream's end",
            CALM,
            headers(1, with_fields((":path", "/no"))),
            data(1) * (3 * LIMITS.control_frames_per_s),
        ),
        goaway("a flood of PING", CALM, wire.frame(wire.PING, 0, 0, bytes(8)) * (LIMITS.control_frames_per_s + 1)),
        goaway("a flood of empty DATA", CALM, headers(1), data(1) * (LIMITS.control_frames_per_s + 1)),
        goaway(
            "a flood of resets",
            CALM,
            *[headers(n) + wire.rst_stream(n, 8) for n in range(1, 2 * LIMITS.control_frames_per_s + 3, 2)],
        ),
    ],
    "10.5.1 limits on field block size": [
        goaway("a block of many frames", CALM, headers(1, flags=0), ContinuationFrame(1, bytes(8000)).serialize() * 3),
        goaway("frames without any", CALM, headers(1, flags=0), ContinuationFrame(1, b"").serialize() * 100),
        goaway(
            "fields that grow when they are decoded",
            CALM,
            wire.frame(wire.HEADERS, BOTH, 1, hpack.Encoder().encode([("a" * 3000, "")]) + b"\xbe" * 9),
        ),
    ],
}


def names() -> list:
    return [
        pytest.param(case, id=re.sub(r"[^\w .:-]", "", f"{section}: {case.name}"))
        for section, cases in SECTIONS.items()
        for case in cases
    ]


async def follow(peer: Peer, case: Case) -> None:
    """Read up to what a case is to end in."""
    streams: dict[int, bytes] = {}
    while True:
        kind, flags, number, payload = await peer.frame()
        if kind == wire.GOAWAY:
            assert case.goaway == int.from_bytes(payload[4:8]), payload
            return
        if kind == wire.RST_STREAM and int.from_bytes(payload) not in (wire.NO_ERROR, wire.CANCEL):
            assert (case.reset, number) == (int.from_bytes(payload), 1)
            return
        if kind == wire.DATA:
            streams[number] = streams.get(number, b"") + payload
        if flags & END and kind in (wire.HEADERS, wire.DATA) and case.answer is not None:
            assert streams[number] == case.answer
            return


@pytest.mark.parametrize("case", names())
async def test_section(case: Case):
    async with serving(http2=LIMITS) as (server, _), connected(server.port) as peer, connected(server.port) as other:
        peer.send(case.data)
        await follow(peer, case)
        # A connection's end is its own, and a stream's end is, too.
        for number, one in ((101, peer), (1, other)):
            if one is other or case.goaway is None:
                one.ask(number, b"still there?")
                assert (await one.response(number))[0] == prefixed(b"still there?")
        if case.goaway is not None:
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(peer.reader.read(), 60) == b""


# --- 3.4: the connection preface --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        wire.PREFACE.replace(b"SM", b"sm"),
        wire.PREFACE + PING_ACK,
        wire.PREFACE + call(1),
        wire.PREFACE + wire.frame(wire.SETTINGS, wire.ACK, 0) + call(1),
    ],
    ids=["another protocol", "another preface", "no SETTINGS but PING", "no SETTINGS but a request", "only its ACK"],
)
async def test_section_3_4_without_a_preface_and_settings_a_connection_ends(data):
    async with serving() as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        peer = Peer(reader, writer)
        peer.send(data)
        assert (await peer.ended())[0] == wire.PROTOCOL_ERROR
        writer.close()


async def test_section_3_4_the_server_s_preface_is_a_settings_frame():
    async with serving() as (server, _), connected(server.port) as peer:
        kind, flags, number, _ = await peer.frame()
        assert (kind, flags & wire.ACK, number) == (wire.SETTINGS, 0, 0)


# --- what needs a conversation ----------------------------------------------------------------------------------------


async def test_section_5_1_2_streams_beyond_the_announced_number_are_refused():
    async with serving(http2=Http2Limits(streams=2)) as (server, _), connected(server.port) as peer:
        peer.send(headers(1, HOLD), headers(3, HOLD), headers(5, HOLD))
        assert await peer.until(wire.RST_STREAM) == (0, 5, U32(wire.REFUSED_STREAM))


async def test_section_6_5_3_each_settings_frame_is_acknowledged():
    async with serving() as (server, _), connected(server.port) as peer:
        peer.send(wire.settings({4: 1}), wire.settings({4: 2}))
        acks = 0
        while acks < 3:
            acks += (await peer.until(wire.SETTINGS))[0] & wire.ACK


async def test_section_6_7_a_ping_is_answered_with_its_own_bytes():
    async with serving() as (server, _), connected(server.port) as peer:
        peer.send(PING_ACK, wire.frame(wire.PING, 0, 0, b"\x00\x01\x02\x03zzzz"))
        assert await peer.until(wire.PING) == (wire.ACK, 0, b"\x00\x01\x02\x03zzzz")


@pytest.mark.parametrize("window", [0, 1, 10])
async def test_section_6_9_2_a_window_may_shrink_below_zero_and_grow_again(window):
    async with serving() as (server, _), connected(server.port, {4: 20}) as peer:
        peer.send(call(1, body=b"x" * 95))
        got = b""
        while len(got) < 20:
            got += (await peer.until(wire.DATA))[2]
        assert len(got) == 20
        # Now it is negative, or just open by nothing.
        peer.send(wire.settings({4: window}), wire.window_update(1, 20 - window), wire.frame(wire.PING, 0, 0, bytes(8)))
        while True:
            kind, _, _, payload = await peer.frame()
            assert kind != wire.DATA, payload
            if kind == wire.PING:
                break
        peer.send(wire.window_update(1, 80))
        while len(got) < 100:
            got += (await peer.until(wire.DATA))[2]
        assert got == prefixed(b"x" * 95)
