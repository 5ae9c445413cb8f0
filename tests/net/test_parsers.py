"""Parsers without I/O. The same bytes mean the same, in whatever pieces they arrive."""

from __future__ import annotations

import hpack
from hyperframe.frame import DataFrame, Frame, HeadersFrame, PingFrame, SettingsFrame, WindowUpdateFrame
from hypothesis import given
from hypothesis import strategies as st

from workers.net.http1.parser import KnownHeads, RequestParser
from workers.net.http2.frames import Http2Error
from workers.net.http2.parser import FrameParser
from workers.net.limits import Http1Limits, Http2Limits

from . import wire
from .http2_client import HEAD

#: pieces' sizes; the rest comes in one
CUTS = st.lists(st.integers(1, 60) | st.sampled_from([300, 5000, 70_000]), max_size=40)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    found = []
    for cut in cuts:
        found.append(data[:cut])
        data = data[cut:]
    return [piece for piece in [*found, data] if piece]


# --- HTTP/1.1 ---------------------------------------------------------------------------------------------------------

LIMITS = Http1Limits(body_bytes=100_000, buffered_bytes=100_000)


class Requests:
    """A sink that keeps what is reported: heads and bodies, and the error."""

    def __init__(self, known: KnownHeads, direct: bool):
        self.parser = RequestParser(self, LIMITS, known)
        self.events: list[tuple] = []
        self.arrived = 0
        self.direct = direct

    def feed(self, data: bytes) -> None:
        while data:
            if self.direct and self.parser._place is not None:
                space = self.parser.space
                size = min(len(space), len(data))
                space[:size] = data[:size]
                self.parser.filled(size)
                data = data[size:]
            else:
                self.parser.feed(data)
                return

    def on_begin(self) -> None:
        self.arrived = 0

    def on_head(self, head) -> None:
        if head.target == b"/no":
            self.events.append(("rejected",))
            self.parser.stop()

    def on_body(self, size: int) -> None:
        self.arrived += size

    def on_large_body(self) -> None:
        assert self.parser.head.length > 64 * 1024

    def on_request(self, head, body) -> None:
        assert self.arrived in (0, len(body))
        self.arrived = 0
        fields = (head.method, head.target, head.query, head.length, head.persistence, sorted(head.headers.items()))
        self.events.append((*fields, bytes(body)))

    def full(self) -> bool:
        return False

    def on_error(self, status: int, message: str) -> None:
        assert self.parser.stopped
        self.events.append((status,))


@st.composite
def requests(draw) -> bytes:
    data = b""
    for _ in range(draw(st.integers(1, 5))):
        size = draw(st.sampled_from([0, 1, 10, 5000, 66_000, 90_000]))
        body = bytes(range(256)) * (size // 256 + 1)
        lines = [
            draw(st.sampled_from([b"POST /a?b=c", b"GET /", b"POST /no"]))
            + b" HTTP/1."
            + draw(st.sampled_from([b"1", b"1", b"1", b"0"]))
        ]
        lines += [
            b"host: a",
            *draw(st.lists(st.sampled_from([b"x: 1", b"X: 2", b"connection: upgrade\r\nupgrade: h2c"]), max_size=2)),
        ]
        kind = draw(st.integers(0, 9))
        if kind == 0:
            lines.append(
                draw(st.sampled_from([b"no header", b"host: b", b"content-length: x", b": empty", b"x: \x00"]))
            )
        if kind in (1, 2):
            chunk = b"%x;extension=1\r\n%s\r\n" % (size, body[:size]) if size else b""
            data += b"\r\n".join([*lines, b"transfer-encoding: chunked", b"", chunk + b"0\r\ntrailer: x\r\n\r\n"])
        else:
            data += b"\r\n".join([*lines, b"content-length: %d" % size, b"", body[:size]])
    return data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 30]))]


@given(requests(), CUTS, st.booleans())
def test_requests_are_the_same_in_any_pieces_and_whether_or_not_their_heads_are_known(data, cuts, direct):
    known = KnownHeads(LIMITS)
    expected = Requests(KnownHeads(LIMITS), False)
    expected.feed(data)
    for _ in range(2):
        # The second time, heads that came whole are known.
        found = Requests(known, direct)
        for piece in pieces(data, cuts):
            found.feed(piece)
        assert found.events == expected.events
        assert found.parser.stopped == expected.parser.stopped


# --- HTTP/2 -----------------------------------------------------------------------------------------------------------


class Frames:
    """A sink that keeps what is reported, and joins pieces of data."""

    def __init__(self) -> None:
        self.parser = FrameParser(Http2Limits())
        self.events: list = []

    def feed(self, data: bytes) -> None:
        try:
            self.parser.feed(data, 0.0, self)
        except Http2Error as error:
            self.events.append(error.code)
            self.parser.stopped = True

    def on_preface(self) -> None:
        self.events.append("preface")

    def on_data(self, number: int, payload, length: int, end: bool) -> None:
        if self.events[-1][0] == "data" and self.events[-1][1] == number and not self.events[-1][4]:
            _, _, before, counted, _ = self.events.pop()
        else:
            before, counted = b"", 0
        self.events.append(("data", number, before + bytes(payload), counted + length, end))

    def on_headers(self, number: int, block: bytes, end: bool) -> None:
        self.events.append(("headers", number, block, end))

    def on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        self.events.append(("frame", kind, flags, number, payload))


BLOCK = hpack.Encoder().encode(HEAD)


@st.composite
def well_formed(draw) -> Frame:
    number, end = draw(st.sampled_from([1, 3, 5])), draw(st.sampled_from([[], ["END_STREAM"]]))
    padding = draw(st.sampled_from([None, 0, 7, 255]))
    flags = end if padding is None else [*end, "PADDED"]
    kind = draw(st.integers(0, 5))
    if kind < 3:
        body = bytes(draw(st.sampled_from([0, 1, 200, 5000, 70_000])))
        return DataFrame(number, body, pad_length=padding or 0, flags=flags)
    if kind == 3:
        return HeadersFrame(number, BLOCK, pad_length=padding or 0, flags=[*flags, "END_HEADERS"])
    return PingFrame(0, b"12345678") if kind == 4 else WindowUpdateFrame(number, 5)


FRAMES = st.lists(well_formed(), min_size=1, max_size=8)
ANY_FRAME = st.builds(wire.frame, st.integers(0, 12), st.integers(0, 255), st.integers(0, 5), st.binary(max_size=40))
GREETING = wire.PREFACE + SettingsFrame(settings={4: 1000}).serialize()


@given(FRAMES, st.lists(ANY_FRAME, max_size=2), st.integers(0, 40), CUTS)
def test_frames_are_the_same_in_any_pieces(sent, hostile, missing, cuts):
    data = GREETING + b"".join(frame.serialize() for frame in sent) + b"".join(hostile)
    data = data[: len(data) - missing]
    whole, cut = Frames(), Frames()
    whole.feed(data)
    for piece in pieces(data, cuts):
        cut.feed(piece)
    assert cut.events == whole.events


@given(FRAMES, CUTS)
def test_frames_mean_what_hyperframe_wrote(sent, cuts):
    found, expected = Frames(), Frames()
    for piece in pieces(GREETING + b"".join(frame.serialize() for frame in sent), cuts):
        found.feed(piece)
    expected.events = found.events[:2]
    for frame in sent:
        number, end = frame.stream_id, "END_STREAM" in frame.flags
        if isinstance(frame, DataFrame):
            expected.on_data(number, frame.data, frame.flow_controlled_length, end)
        elif isinstance(frame, HeadersFrame):
            expected.on_headers(number, BLOCK, end)
        else:
            expected.on_frame(frame.type, 0, number, frame.serialize_body())
    assert found.events == expected.events
