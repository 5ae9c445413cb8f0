"""A parser from bytes of one connection to frames.

See RFC 9113, sections 3.4, 4 and 6. It has no socket and no clock, and only calls a sink. DATA is reported as it
arrives, header blocks once they are complete, other frames whole.
"""

from __future__ import annotations

from typing import Any

from workers.net.limits import COPY_BYTES, Http2Limits

from . import frames as h2
from .frames import Http2Error


class FrameParser:
    """Parses the frames of one connection.

    Attributes:
        rest: bytes that are not parsed yet.
        stopped: parse no further frames for now.
        settled: the client's SETTINGS arrived, as they must before all other frames.
        headers_since: since when a header block has been arriving in several frames; None: it is not.
    """

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self.rest = b""
        self.stopped = False
        self.settled = False
        self.headers_since: float | None = None
        self._preface = False
        #: of a DATA frame that is arriving: its stream, its flags, missing bytes, and how many of these are padding
        self._data: tuple[int, int, int, int] | None = None
        #: of a header block in several frames: its stream, whether it has no body, and its fragments
        self._block: tuple[int, bool, bytearray] | None = None

    def feed(self, data: bytes, now: float, sink: Any) -> None:
        """Parse bytes that were left and those that arrived now.

        Args:
            now: ``time.monotonic()``.
            sink: gets the frames in order (:class:`~.handler.FrameHandler`), and may raise Http2Error or stop the
                parser. Not kept: it keeps the parser, and that would be a reference cycle.

        Raises:
            Http2Error: the bytes break the protocol.
        """
        if self.rest:
            data = self.rest + data
            self.rest = b""
        offset, size = 0, len(data)
        if not self._preface:
            if not h2.PREFACE.startswith(data[: len(h2.PREFACE)]):
                raise Http2Error(h2.PROTOCOL_ERROR, "not HTTP/2: the connection preface is missing")
            if size < len(h2.PREFACE):
                self.rest = data
                return
            self._preface = True
            sink.on_preface()
            offset = len(h2.PREFACE)
        elif self._data is not None:
            offset = self._more_data(data, 0, sink)
        while size - offset >= h2.HEADER_BYTES and not self.stopped:
            high, low, kind, flags, number = h2.unpack_header(data, offset)
            length = high << 8 | low
            number &= h2.MAX_WINDOW
            begin = offset + h2.HEADER_BYTES
            end = begin + length
            if kind == h2.DATA:
                if length > self._limits.data_frame_bytes or not self.settled or self._block is not None or not number:
                    raise self._data_error(length)
                if end <= size:
                    payload = data[begin:end] if length <= COPY_BYTES else memoryview(data)[begin:end]
                    if flags & h2.PADDED:
                        payload = h2.unpad(flags, payload)
                    sink.on_data(number, payload, length, flags & h2.END_STREAM > 0)
                elif not flags & h2.PADDED:
                    self._data = number, flags, length, 0
                    end = self._more_data(data, begin, sink)
                elif begin < size:
                    self._data = number, flags, length - 1, h2.check_padding(data[begin], length)
                    # Flow control counts the pad length, too.
                    sink.on_data(number, b"", 1, False)
                    end = self._more_data(data, begin + 1, sink)
                else:
                    break
            else:
                if length > h2.DEFAULT_FRAME:
                    raise Http2Error(h2.FRAME_SIZE_ERROR, f"frame of type {kind}: at most {h2.DEFAULT_FRAME} bytes")
                if end > size:
                    break
                self._other(kind, flags, number, data[begin:end], now, sink)
            offset = end
        self.rest = data[offset:]

    def _data_error(self, length: int) -> Http2Error:
        most = self._limits.data_frame_bytes
        if length > most:
            return Http2Error(h2.FRAME_SIZE_ERROR, f"DATA: at most {most} bytes in a frame")
        return Http2Error(h2.PROTOCOL_ERROR, "DATA: not allowed here")

    def _more_data(self, data: bytes, offset: int, sink: Any) -> int:
        """Report what has arrived of a DATA frame; return the offset behind it."""
        assert self._data is not None
        number, flags, missing, padding = self._data
        piece = memoryview(data)[offset : offset + missing]
        length, useful = len(piece), missing - padding
        missing -= length
        self._data = (number, flags, missing, min(padding, missing)) if missing else None
        if length or not missing:
            sink.on_data(number, piece[:useful], length, not missing and flags & h2.END_STREAM > 0)
        return offset + length

    def _other(self, kind: int, flags: int, number: int, payload: bytes, now: float, sink: Any) -> None:
        if not self.settled:
            if kind != h2.SETTINGS:
                raise Http2Error(h2.PROTOCOL_ERROR, "SETTINGS: must be the first frame")
            self.settled = not flags & h2.ACK
        if (self._block is not None) != (kind == h2.CONTINUATION):
            raise Http2Error(h2.PROTOCOL_ERROR, f"frame of type {kind}: not allowed here")
        if kind == h2.HEADERS:
            self._headers(number, flags, payload, now, sink)
        elif kind == h2.CONTINUATION:
            self._continuation(number, flags, payload, sink)
        else:
            sink.on_frame(kind, flags, number, payload)

    def _headers(self, number: int, flags: int, payload: bytes, now: float, sink: Any) -> None:
        if not number & 1:
            raise Http2Error(h2.PROTOCOL_ERROR, "HEADERS: clients use odd stream identifiers")
        if flags & h2.PADDED:
            payload = bytes(h2.unpad(flags, payload))
        if flags & h2.WITH_PRIORITY:
            if len(payload) < 5:
                raise Http2Error(h2.FRAME_SIZE_ERROR, "HEADERS: cut off")
            if h2.unpack_u32(payload)[0] & h2.MAX_WINDOW == number:
                raise Http2Error(h2.PROTOCOL_ERROR, "HEADERS: a stream cannot depend on itself")
            payload = payload[5:]
        end = flags & h2.END_STREAM > 0
        if flags & h2.END_HEADERS:
            sink.on_headers(number, payload, end)
        else:
            self._block, self.headers_since = (number, end, bytearray(payload)), now

    def _continuation(self, number: int, flags: int, payload: bytes, sink: Any) -> None:
        assert self._block is not None
        expected, end, block = self._block
        if number != expected:
            raise Http2Error(h2.PROTOCOL_ERROR, "CONTINUATION: on another stream than its HEADERS")
        most = self._limits.header_bytes
        if len(block) + len(payload) > most or not payload:
            raise Http2Error(h2.ENHANCE_YOUR_CALM, f"headers: at most {most} bytes, and some in each frame")
        block += payload
        if flags & h2.END_HEADERS:
            self._block = self.headers_since = None
            sink.on_headers(number, bytes(block), end)
