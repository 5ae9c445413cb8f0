"""Frames of one client by the rules of RFC 9113, without a socket.

Streams, flow control in both directions, and budgets.
"""

from __future__ import annotations

import time
from typing import Any

from workers.net.admission import RefusalBudget
from workers.net.limits import Http2Limits

from . import frames as h2
from .frames import Buffer, Http2Error
from .headers import HeaderDecoder, HeaderList, MalformedHeaders
from .parser import FrameParser
from .stream import Http2Stream

_SETTINGS_ACK = h2.frame(h2.SETTINGS, h2.ACK, 0)
#: of the PING behind an announced end; see :meth:`.connection.Http2Connection.announce`
LAST_PING = b"lastone?"


class FrameHandler:
    """The sink of a connection's parser.

    :class:`~.connection.Http2Connection` extends it with a socket, to which it writes.

    Args:
        server: has ``connections``, the open ones; ``streams``, the count of open ones; ``turns_until``, when
            connections whose turn is over go on; and ``open(connection, number, headers)``, which makes the stream of a
            request.

    Attributes:
        streams: open ones, by number.
        window, initial_window: bytes that the client accepts on the connection, and at first on each stream.
        max_frame: bytes of a DATA frame to the client.
        paused: the socket accepts no more for now.
        blocked: streams that only the connection's window or socket holds up, in order.
        touched: ``time.monotonic()`` when bytes last arrived.
    """

    def __init__(self, server: Any, limits: Http2Limits):
        self._server = server
        self._limits = limits
        self._decoder = HeaderDecoder(limits)
        self._parser = FrameParser(limits)
        self.streams: dict[int, Http2Stream] = {}
        self.blocked: dict[int, Http2Stream] = {}
        self.window = self.initial_window = h2.DEFAULT_WINDOW
        self.max_frame = h2.DEFAULT_FRAME
        self.paused = False
        self.touched = time.monotonic()
        #: control frames of this second
        self._controls = 0
        #: requests of this read
        self._begun = 0
        #: when unknown header blocks of this read must wait for the next turn
        self._turn_ends = 0.0
        self._refusals = RefusalBudget(limits.refusals)
        #: requests that ended neither by a reset nor refused
        self._answered = 0
        #: no bytes are read; the client was notified which request is the last
        self._closing = self._stopping = False
        #: the highest stream number so far
        self._last = 0
        #: bytes of data since the last update of the window
        self._unread = 0

    # --- data and other frames ---

    def on_data(self, number: int, payload: Buffer, length: int, end: bool) -> None:
        """Handle data, perhaps a part of a frame; ``length``: bytes with padding, as flow control counts them."""
        limits = self._limits
        self._unread += length
        if self._unread > limits.connection_window_bytes:
            raise Http2Error(h2.FLOW_CONTROL_ERROR, "DATA: more than the connection's window")
        if self._unread >= limits.connection_window_bytes // 2:
            self.write(h2.window_update(0, self._unread))
            self._unread = 0
        stream = self.streams.get(number)
        if stream is None or not stream.reading:
            self._data_on_closed(number, stream, payload)
            return
        if payload:
            stream.moved = self.touched
        elif not end:
            # Empty frames are no progress.
            self._control()
        stream.unread += length
        if stream.unread > limits.stream_window_bytes:
            raise Http2Error(h2.FLOW_CONTROL_ERROR, "DATA: more than the stream's window")
        if stream.missing is not None:
            stream.missing -= len(payload)
            if stream.missing < 0 or (end and stream.missing):
                self._abandon(stream, h2.PROTOCOL_ERROR)
                return
        if end:
            stream.reading = False
        stream.received(payload, end)
        if stream.unread >= limits.stream_window_bytes // 2:
            self.reopen_window(stream)

    def _data_on_closed(self, number: int, stream: Http2Stream | None, payload: Buffer) -> None:
        if number > self._last or not number & 1:
            raise Http2Error(h2.PROTOCOL_ERROR, "DATA: on a stream that is not open")
        if stream is not None:
            raise Http2Error(h2.STREAM_CLOSED, "DATA: behind the end of the stream")
        if not payload:
            self._control()

    def reopen_window(self, stream: Http2Stream) -> None:
        if stream.reading and not stream.held and not stream.done and stream.unread:
            self.write(h2.window_update(stream.number, stream.unread))
            stream.unread = 0

    def on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        self._control()
        size = len(payload)
        if kind == h2.WINDOW_UPDATE:
            _require_size(size, 4)
            self._on_window(number, h2.unpack_u32(payload)[0] & h2.MAX_WINDOW)
        elif kind == h2.PING:
            _require_size(size, 8)
            _require_stream(not number)
            if not flags & h2.ACK:
                self.write(h2.frame(h2.PING, h2.ACK, 0, payload))
            elif payload == LAST_PING:
                self.on_announcement_read()
        elif kind == h2.SETTINGS:
            _require_stream(not number)
            self._on_settings(flags, payload)
        elif kind == h2.RST_STREAM:
            _require_size(size, 4)
            _require_stream(0 < number <= self._last)
            stream = self.streams.get(number)
            if stream is not None:
                stream.reading = False
                self._gone(stream)
                self.refused()
        elif kind == h2.PRIORITY:
            _require_size(size, 5)
            _require_stream(number > 0)
            if h2.unpack_u32(payload)[0] & h2.MAX_WINDOW == number:
                raise Http2Error(h2.PROTOCOL_ERROR, "PRIORITY: a stream cannot depend on itself")
        elif kind == h2.GOAWAY:
            _require_stream(not number)
        elif kind == h2.PUSH_PROMISE:
            raise Http2Error(h2.PROTOCOL_ERROR, "PUSH_PROMISE: clients cannot push")
        # Unknown types are ignored (RFC 9113, section 4.1).

    def _control(self, weight: int = 1) -> None:
        self._controls += weight
        most = self._limits.control_frames_per_s
        if self._controls > most:
            raise Http2Error(h2.ENHANCE_YOUR_CALM, f"at most {most} control frames a second")

    # --- headers ---

    def on_headers(self, number: int, block: bytes, end: bool) -> None:
        stream = self.streams.get(number)
        if stream is not None or number <= self._last:
            self._on_trailers(number, stream, block, end)
            return
        self._last = number
        try:
            # Even if the request is refused: both sides must keep the same table.
            headers = self._decoder.decode(block)
        except MalformedHeaders:
            self._refuse(number, h2.PROTOCOL_ERROR)
            return
        if self._stopping or len(self.streams) >= self._limits.streams:
            # Not processed: clients may send it again, elsewhere (RFC 9113, section 8.7).
            self._refuse(number, h2.REFUSED_STREAM)
            return
        if headers.block:
            self._check_turn()
        self._begun += 1
        if self._begun >= self._limits.requests_per_read:
            self._parser.stopped = True
        stream = self._server.open(self, number, headers)
        self.streams[number] = stream
        self._server.streams += 1
        length = headers.fields.get(b"content-length")
        if length is not None:
            stream.missing = int(length) if length.isdigit() and len(length) < 16 else -1
            if stream.missing < 0 or (end and stream.missing):
                self._abandon(stream, h2.PROTOCOL_ERROR)
                return
        if end:
            stream.reading = False
        stream.opened()
        if end and not stream.done:
            stream.received(b"", True)

    def _check_turn(self) -> None:
        if time.monotonic() > self._turn_ends:
            self._parser.stopped = True

    def _refuse(self, number: int, code: int) -> None:
        self.write(h2.rst_stream(number, code))
        self._check_turn()
        self._spend()

    def refused(self) -> None:
        """Count a request that was refused or reset. Raises Http2Error if too many were."""
        self._answered -= 1
        self._check_turn()
        self._spend()

    def _spend(self) -> None:
        if not self._refusals.spend(self.touched, self._answered):
            limits = self._limits.refusals
            text = f"at most {limits.burst} requests that are reset or refused, and then {limits.per_s:g} a second"
            raise Http2Error(h2.ENHANCE_YOUR_CALM, text)

    def remember(self, headers: HeaderList) -> None:
        self._decoder.remember(headers)

    def _on_trailers(self, number: int, stream: Http2Stream | None, block: bytes, end: bool) -> None:
        try:
            self._decoder.decode(block)
            request = True
        except MalformedHeaders:
            # Trailers have no pseudo-header fields. Their content is ignored.
            request = False
        if stream is None:
            if request:
                raise Http2Error(h2.PROTOCOL_ERROR, "HEADERS: stream identifiers must increase")
            # The stream was answered and closed while they were on their way.
            self._control()
            return
        if not stream.reading:
            raise Http2Error(h2.STREAM_CLOSED, "HEADERS: behind the end of the stream")
        if not end:
            raise Http2Error(h2.PROTOCOL_ERROR, "HEADERS: trailers must end the stream")
        if request or stream.missing:
            self._abandon(stream, h2.PROTOCOL_ERROR)
            return
        stream.reading = False
        stream.received(b"", True)

    def _abandon(self, stream: Http2Stream, code: int) -> None:
        """Reset a stream whose request is malformed (RFC 9113, section 8.1.1)."""
        stream.reading = False
        self.write(h2.rst_stream(stream.number, code))
        self._gone(stream)
        self.refused()

    # --- settings and windows ---

    def _on_settings(self, flags: int, payload: bytes) -> None:
        if flags & h2.ACK:
            _require_size(len(payload), 0)
            return
        values = h2.parse_settings(payload)
        # Each may take a pass over all streams.
        self._control(len(values) * (1 + len(self.streams)))
        for name, value in values:
            if name == h2.INITIAL_WINDOW_SIZE:
                for stream in self.streams.values():
                    stream.window += value - self.initial_window
                    if stream.window > h2.MAX_WINDOW:
                        raise Http2Error(h2.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE: a window is too large")
                    stream.wait()
                self.initial_window = value
            elif name == h2.MAX_FRAME_SIZE:
                self.max_frame = min(value, self._limits.data_frame_bytes)
        self.write(_SETTINGS_ACK)
        self.pump()

    def _on_window(self, number: int, increment: int) -> None:
        if not number:
            if not increment:
                raise Http2Error(h2.PROTOCOL_ERROR, "WINDOW_UPDATE: must be 1 or more")
            self.window += increment
            if self.window > h2.MAX_WINDOW:
                raise Http2Error(h2.FLOW_CONTROL_ERROR, "WINDOW_UPDATE: the window is too large")
        else:
            _require_stream(number <= self._last)
            stream = self.streams.get(number)
            if stream is None:
                return
            stream.window += increment
            if not increment or stream.window > h2.MAX_WINDOW:
                self._abandon(stream, h2.FLOW_CONTROL_ERROR if increment else h2.PROTOCOL_ERROR)
                return
            stream.wait()
        if self.blocked:
            self.pump()

    # --- sending ---

    def pump(self) -> None:
        blocked = self.blocked
        while blocked and self.window > 0 and not self.paused and not self._closing:
            number = next(iter(blocked))
            stream = blocked.pop(number)
            stream.pump()
            stream.wait()

    def finished(self, stream: Http2Stream) -> None:
        if stream.done:
            return
        stream.done = True
        stream.outbox = None
        self._answered += 1
        self.streams.pop(stream.number, None)
        self.blocked.pop(stream.number, None)
        self._server.streams -= 1
        stream.over()
        if not self.streams:
            self.on_idle()

    def _gone(self, stream: Http2Stream) -> None:
        if not stream.done:
            self.finished(stream)
            stream.gone()


def _require_size(size: int, expected: int) -> None:
    if size != expected:
        raise Http2Error(h2.FRAME_SIZE_ERROR, f"frame: has {size} bytes, must have {expected}")


def _require_stream(valid: bool) -> None:
    if not valid:
        raise Http2Error(h2.PROTOCOL_ERROR, "frame: on a stream where it is not allowed")
