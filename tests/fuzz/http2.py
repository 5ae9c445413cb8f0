"""Frames of HTTP/2 and their header blocks are the same in any pieces."""

from __future__ import annotations

from hyperframe.frame import ContinuationFrame, DataFrame, HeadersFrame, PingFrame, PriorityFrame, WindowUpdateFrame

from tests.net.test_parsers import BLOCK, GREETING, Frames
from workers.net.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, Http2Error, parse_settings
from workers.net.http2.headers import HeaderDecoder, MalformedHeaders
from workers.net.limits import Http2Limits

LIMITS = Http2Limits()
PLAIN = b"\x83\x86\x44\x01/\x00\x01a\x01b"


def seeds() -> list[bytes]:
    end = ["END_HEADERS"]
    frames = [
        HeadersFrame(1, BLOCK, flags=end),
        HeadersFrame(3, PLAIN, flags=[*end, "END_STREAM", "PADDED"], pad_length=3),
        DataFrame(1, b"abc", flags=["END_STREAM", "PADDED"], pad_length=9),
        HeadersFrame(5, BLOCK[:9]),
        ContinuationFrame(5, BLOCK[9:], flags=end),
        PingFrame(0, b"12345678"),
        WindowUpdateFrame(1, 7),
        PriorityFrame(1, stream_weight=3),
    ]
    sent = [frame.serialize() for frame in frames]
    return [b"\x00" + b"".join(sent), b"\x08" + sent[1] * 3, *(b"\x01" + one for one in sent), b"\x05" + bytes(40)]


def check(data: bytes) -> None:
    if not data:
        return
    cut, data = data[0] + 1, GREETING + data[1:]
    whole = Frames()
    whole.feed(data)
    for size in (cut, 1):
        found = Frames()
        for offset in range(0, len(data), size):
            if not found.parser.stopped:
                found.feed(data[offset : offset + size])
        assert found.events == whole.events, size
    first, again = HeaderDecoder(LIMITS), HeaderDecoder(LIMITS)
    for event in whole.events:
        if not isinstance(event, tuple):
            # The preface, or the error that ended the connection.
            continue
        if event[0] == "headers" and not decoded_alike(first, again, event[2]):
            break
        if event[0] == "frame" and event[1] == 4:
            settings(event[4])
    assert len(first._known) <= LIMITS.known_blocks


def decoded_alike(remembers: HeaderDecoder, never: HeaderDecoder, block: bytes) -> bool:
    outcomes = []
    for decoder in (remembers, never):
        try:
            headers = decoder.decode(block)
            if decoder is remembers:
                decoder.remember(headers)
            assert len(headers.fields) <= LIMITS.fields
            assert sum(len(name) + len(value) for name, value in headers.fields.items()) <= LIMITS.header_bytes
            outcomes.append(headers.fields)
        except MalformedHeaders:
            outcomes.append(None)
        except Http2Error as error:
            assert error.code in (ENHANCE_YOUR_CALM, COMPRESSION_ERROR)
            outcomes.append(error.code)
    assert outcomes[0] == outcomes[1]
    return not isinstance(outcomes[0], int)


def settings(payload: bytes) -> None:
    try:
        parse_settings(payload)
    except Http2Error as error:
        assert str(error)
