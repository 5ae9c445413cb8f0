"""What a client sends over one HTTP/2 connection, taken apart: frames, data as far as it has come, and whole heads
(RFC 9113, sections 3.4, 4 and 6). Pure, but that it tells what it finds as it finds it."""

from __future__ import annotations

from typing import Protocol

from workers.protocol.tensors import Buffer

from . import frames as h2
from .frames import Http2Error
from .heads import MOST_BYTES

#: bytes that a client may send in one frame of data
DATA_FRAME = 256 * 1024
#: of so many bytes a copy costs less than a view
SMALL = 4096


class Taker(Protocol):
    """Whom a reader tells. Each may raise Http2Error, and may set :attr:`Reader.stopped`."""

    def on_greeting(self) -> None:
        """The client speaks HTTP/2."""

    def on_data(self, number: int, payload: Buffer, length: int, end: bool) -> None:
        """Data of a stream, perhaps a piece of a frame; with padding ``length`` bytes. ``end``: its stream's."""

    def on_head(self, number: int, block: bytes, end: bool) -> None:
        """A packed head of a stream, whole. ``end``: it has no body."""

    def on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """A whole frame of any other kind, known or not."""


class Reader:
    """The beginnings of whatever has not come whole.

    ``rest``: bytes that have come and were not taken apart. ``stopped``: take no more frames for now. ``settled``: the
    client has told its settings, as it must before all else. ``head_since``: since when a head has been coming in
    pieces; None: it is not.
    """

    def __init__(self) -> None:
        self.rest = b""
        self.stopped = False
        self.settled = False
        self.head_since: float | None = None
        self._greeted = False
        #: of a frame of data that has not come whole: its stream, its flags, and the bytes that are missing, with how
        #: many of padding at their end
        self._data: tuple[int, int, int, int] | None = None
        #: a head in several frames: its stream, whether its request has no body, and its pieces
        self._block: tuple[int, bool, bytearray] | None = None

    def read(self, data: bytes, now: float, taker: Taker) -> None:
        """Take apart what was left and what has come now. (Whom it tells it does not keep: he keeps it, and would stay
        in memory with it until a collector comes.)

        Raises:
            Http2Error: it breaks the protocol.
        """
        if self.rest:
            data = self.rest + data
            self.rest = b""
        offset, size = 0, len(data)
        if not self._greeted:
            if not h2.PREFACE.startswith(data[: len(h2.PREFACE)]):
                raise Http2Error(h2.PROTOCOL_ERROR, "not HTTP/2: the connection preface is missing")
            if size < len(h2.PREFACE):
                self.rest = data
                return
            self._greeted = True
            taker.on_greeting()
            offset = len(h2.PREFACE)
        elif self._data is not None:
            offset = self._more_data(data, 0, taker)
        while size - offset >= h2.HEAD and not self.stopped:
            high, low, kind, flags, number = h2.unpack_head(data, offset)
            length = high << 8 | low
            number &= h2.MOST_WINDOW
            begin = offset + h2.HEAD
            end = begin + length
            if kind == h2.DATA:
                if length > DATA_FRAME:
                    raise Http2Error(h2.FRAME_SIZE_ERROR, f"DATA: at most {DATA_FRAME} bytes in a frame")
                if not self.settled or self._block is not None or not number:
                    raise Http2Error(h2.PROTOCOL_ERROR, "DATA: out of place")
                if end <= size:
                    # Of what is small a copy costs less than a view.
                    payload = data[begin:end] if length <= SMALL else memoryview(data)[begin:end]
                    if flags & h2.PADDED:
                        payload = h2.unpadded(flags, payload)
                    taker.on_data(number, payload, length, flags & h2.END_STREAM > 0)
                elif not flags & h2.PADDED:
                    self._data = number, flags, length, 0
                    end = self._more_data(data, begin, taker)
                elif begin < size:
                    self._data = number, flags, length - 1, h2.padding(data[begin], length)
                    # Its length is data, too.
                    taker.on_data(number, b"", 1, False)
                    end = self._more_data(data, begin + 1, taker)
                else:
                    break
            else:
                if length > h2.FRAME:
                    raise Http2Error(h2.FRAME_SIZE_ERROR, f"frame of kind {kind}: at most {h2.FRAME} bytes")
                if end > size:
                    break
                self._take(kind, flags, number, data[begin:end], now, taker)
            offset = end
        self.rest = data[offset:]

    def _more_data(self, data: bytes, offset: int, taker: Taker) -> int:
        """Take what has come of a frame of data; where that ends."""
        assert self._data is not None
        number, flags, missing, padding = self._data
        piece = memoryview(data)[offset : offset + missing]
        length, useful = len(piece), missing - padding
        missing -= length
        self._data = (number, flags, missing, min(padding, missing)) if missing else None
        if length or not missing:
            taker.on_data(number, piece[:useful], length, not missing and flags & h2.END_STREAM > 0)
        return offset + length

    def _take(self, kind: int, flags: int, number: int, payload: bytes, now: float, taker: Taker) -> None:
        """A whole frame that is no data."""
        if not self.settled:
            if kind != h2.SETTINGS:
                raise Http2Error(h2.PROTOCOL_ERROR, "SETTINGS: must come first")
            self.settled = not flags & h2.ACK
        if (self._block is not None) != (kind == h2.CONTINUATION):
            raise Http2Error(h2.PROTOCOL_ERROR, f"frame of kind {kind}: out of place")
        if kind == h2.HEADERS:
            self._on_headers(number, flags, payload, now, taker)
        elif kind == h2.CONTINUATION:
            self._on_continuation(number, flags, payload, taker)
        else:
            taker.on_frame(kind, flags, number, payload)

    def _on_headers(self, number: int, flags: int, payload: bytes, now: float, taker: Taker) -> None:
        if not number & 1:
            raise Http2Error(h2.PROTOCOL_ERROR, "HEADERS: on a stream where it has no place")
        if flags & h2.PADDED:
            payload = bytes(h2.unpadded(flags, payload))
        if flags & h2.WITH_PRIORITY:
            if len(payload) < 5:
                raise Http2Error(h2.FRAME_SIZE_ERROR, "HEADERS: cut off")
            if h2.unpack_u32(payload)[0] & h2.MOST_WINDOW == number:
                raise Http2Error(h2.PROTOCOL_ERROR, "HEADERS: a stream cannot depend on itself")
            payload = payload[5:]
        end = flags & h2.END_STREAM > 0
        if flags & h2.END_HEADERS:
            taker.on_head(number, payload, end)
        else:
            self._block, self.head_since = (number, end, bytearray(payload)), now

    def _on_continuation(self, number: int, flags: int, payload: bytes, taker: Taker) -> None:
        assert self._block is not None
        expected, end, block = self._block
        if number != expected:
            raise Http2Error(h2.PROTOCOL_ERROR, "CONTINUATION: on another stream than its head")
        if len(block) + len(payload) > MOST_BYTES or not payload:
            raise Http2Error(h2.ENHANCE_YOUR_CALM, f"headers: at most {MOST_BYTES} bytes, and some in each frame")
        block += payload
        if flags & h2.END_HEADERS:
            self._block = self.head_since = None
            taker.on_head(number, bytes(block), end)
