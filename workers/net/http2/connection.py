"""One client connection over HTTP/2: its streams, flow control in both directions, and time limits (RFC 9113)."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Sequence
from typing import Protocol

from workers.net.admission import Connections, RefusalBudget, peer_address
from workers.net.limits import Http2Limits

from . import frames as h2
from .frames import Buffer, Http2Error
from .headers import HeaderDecoder, HeaderList, KnownBytes, MalformedHeaders
from .parser import FrameParser
from .stream import Http2Stream

logger = logging.getLogger(__name__)

_SETTINGS_ACK = h2.frame(h2.SETTINGS, h2.ACK, 0)
_PING = h2.frame(h2.PING, 0, 0, b"stillup?")
_LAST_PING = b"lastone?"
#: a first GOAWAY refuses nothing, as requests may be on their way; a client that answers the PING behind it has read it
#: (RFC 9113, section 6.8)
_ANNOUNCEMENT = h2.goaway(h2.MAX_WINDOW, h2.NO_ERROR) + h2.frame(h2.PING, 0, 0, _LAST_PING)


@functools.cache
def _preface(limits: Http2Limits) -> bytes:
    return h2.settings(
        {
            h2.MAX_CONCURRENT_STREAMS: limits.streams,
            h2.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
            h2.MAX_FRAME_SIZE: limits.data_frame_bytes,
            h2.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
    ) + h2.window_update(0, limits.connection_window_bytes - h2.DEFAULT_WINDOW)


class Http2Server(Protocol):
    """The server of the connections. ``streams``: open ones of all connections, counted by these; ``known_bytes``: of
    the header lists that they remember; ``turns_until``: connections whose turn is over wait until then."""

    connections: Connections[Http2Connection]
    streams: int
    known_bytes: KnownBytes
    turns_until: float

    def open(self, connection: Http2Connection, number: int, headers: HeaderList) -> Http2Stream:
        """A stream for a request with these headers."""

    def closed(self, connection: Http2Connection) -> None:
        """A connection has ended, or has no stream left."""


class Http2Connection(asyncio.Protocol):
    """One client connection.

    Attributes:
        streams: open ones, by number.
        reading_bytes, unsent_bytes: held by its streams: of requests that are being read, and of responses that the
            client does not read. The server's own, for its limits.
        window, initial_window: bytes that the client accepts on the connection, and at first on each stream.
        max_frame: bytes of a DATA frame to the client.
        paused: the socket accepts no more for now.
        blocked: streams that only the connection's window or socket holds up, in order.
        touched: ``time.monotonic()`` when bytes last arrived.
        address: see :func:`.admission.peer_address`.
        holder: see :class:`.admission.Evictable`.
    """

    def __init__(self, server: Http2Server, limits: Http2Limits):
        self._server = server
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self.address = self.holder = ""
        self._decoder = HeaderDecoder(limits, server.known_bytes)
        self._parser = FrameParser(limits)
        self.streams: dict[int, Http2Stream] = {}
        self.reading_bytes = self.unsent_bytes = 0
        self.blocked: dict[int, Http2Stream] = {}
        self.window = self.initial_window = h2.DEFAULT_WINDOW
        self.max_frame = h2.DEFAULT_FRAME
        self.paused = False
        self.touched = self._opened_at = time.monotonic()
        self._pinged_at = 0.0
        #: control frames of this second
        self._controls = 0
        #: requests of this read, and whether the rest of it is parsed in the event loop's next turn
        self._begun, self._later = 0, False
        #: when unknown header blocks of this read must wait for the next turn
        self._turn_ends = 0.0
        self._refusals = RefusalBudget(limits.refusals)
        #: requests that ended neither by a reset nor refused
        self._answered = 0
        #: no bytes are read; the client knows that this connection ends; it was told which request is the last
        self._closing = self._announced = self._stopping = False
        #: the server's SETTINGS, which come before all other frames, are written
        self._greeted = False
        #: the highest stream number so far
        self._last = 0
        #: bytes of data since the last update of the window
        self._unread = 0

    # --- called by the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.address = self.holder = peer_address(transport)
        refusal = self._server.connections.open(self)
        if refusal is not None:
            self._fail(h2.ENHANCE_YOUR_CALM, refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_reading()
        self._transport = None
        self._parser.rest = b""
        self._decoder.forget()
        for stream in list(self.streams.values()):
            self._gone(stream)
        self._server.connections.close(self)
        self._server.closed(self)

    def pause_writing(self) -> None:
        # A client that does not read responses gets no more requests read.
        self.paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.paused = False
        if self._transport is not None and not self._closing and not self._later:
            self._transport.resume_reading()
        self.pump()

    def data_received(self, data: bytes) -> None:
        self.touched = time.monotonic()
        if self._closing:
            return
        if self._later:
            self._parser.rest += data
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        self._begun, parser.stopped = 0, False
        self._turn_ends = time.monotonic() + self._limits.turn_s
        try:
            parser.feed(data, self.touched, self)
        except Http2Error as error:
            self._fail(error.code, str(error))
        except Exception:
            logger.exception("http2_connection_failed")
            self._fail(h2.INTERNAL_ERROR, "internal error")
        if parser.stopped and not self._closing and not self._transport.is_closing():
            # One read may hold thousands of requests, and other connections need the event loop, too.
            self._later = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(self._turn_pause_s(), self._feed_rest)

    def _turn_pause_s(self) -> float:
        """Seconds until the connection's next turn; 0 where it has used up none."""
        now, limits, server = time.monotonic(), self._limits, self._server
        over_s = now - self._turn_ends
        if over_s <= 0.0:
            return 0.0
        spent_s = limits.turn_s + over_s
        server.turns_until = max(server.turns_until, now) + spent_s / limits.turns_share - spent_s
        return server.turns_until - now

    def _feed_rest(self) -> None:
        self._later = False
        if self._transport is None or self._closing:
            return
        self._feed(b"")
        if not self._later and not self.paused and not self._closing and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- called by the parser: data and other frames ---

    def on_preface(self) -> None:
        """See :class:`.parser.FrameSink`."""
        self._greeted = True
        self.write(_preface(self._limits))
        if self._announced:
            self.write(_ANNOUNCEMENT)

    def on_data(self, number: int, payload: Buffer, length: int, end: bool) -> None:
        """See :class:`.parser.FrameSink`."""
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
        """Open the window of a stream again, unless it is held."""
        if stream.reading and not stream.held and not stream.done and stream.unread:
            self.write(h2.window_update(stream.number, stream.unread))
            stream.unread = 0

    def on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """See :class:`.parser.FrameSink`."""
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
            elif self._announced and payload == _LAST_PING:
                self.stop()
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

    # --- called by the parser: headers ---

    def on_headers(self, number: int, block: bytes, end: bool) -> None:
        """See :class:`.parser.FrameSink`."""
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
        """Let other connections have the event loop once unknown headers have taken long enough."""
        if time.monotonic() > self._turn_ends:
            self._parser.stopped = True

    def _refuse(self, number: int, code: int) -> None:
        """Refuse a request for which no stream was opened."""
        self.write(h2.rst_stream(number, code))
        self._check_turn()
        self._spend()

    def refused(self) -> None:
        """Count a request that was refused or reset. Raises Http2Error if there are too many."""
        self._answered -= 1
        self._check_turn()
        self._spend()

    def _spend(self) -> None:
        if not self._refusals.spend(self.touched, self._answered):
            limits = self._limits.refusals
            text = f"at most {limits.burst} requests that are reset or refused, and then {limits.per_s:g} a second"
            raise Http2Error(h2.ENHANCE_YOUR_CALM, text)

    def remember(self, headers: HeaderList) -> None:
        """Accept requests with the same header block without decoding it again."""
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
        """Reset a stream whose request is malformed (RFC 9113, section 8.1.1) or breaks flow control."""
        stream.reading = False
        self.write(h2.rst_stream(stream.number, code))
        self._gone(stream)
        self.refused()

    # --- settings and windows ---

    def _on_settings(self, flags: int, payload: bytes) -> None:
        if flags & h2.ACK:
            _require_size(len(payload), 0)
            return
        found = h2.parse_settings(payload)
        # Each may take a pass over all streams.
        self._control(len(found) * (1 + len(self.streams)))
        for name, value in found:
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

    def write(self, data: bytes) -> None:
        """Hand bytes to the socket."""
        if self._transport is not None and data and not self._closing:
            self._transport.write(data)

    def write_all(self, pieces: Sequence[Buffer]) -> None:
        """Hand large pieces to the socket."""
        if self._transport is not None and not self._closing:
            self._transport.writelines(pieces)

    def pump(self) -> None:
        """Send blocked data, one frame of each stream in turn."""
        blocked = self.blocked
        while blocked and self.window > 0 and not self.paused and not self._closing:
            number = next(iter(blocked))
            stream = blocked.pop(number)
            stream.pump()
            stream.wait()

    def finished(self, stream: Http2Stream) -> None:
        """A stream has ended."""
        if stream.done:
            return
        stream.done = True
        stream.outbox = None
        self._answered += 1
        self.streams.pop(stream.number, None)
        self.blocked.pop(stream.number, None)
        self._server.streams -= 1
        stream.over()
        if self.streams:
            return
        if self._stopping:
            self._close_in_order()
        self._server.closed(self)

    def _gone(self, stream: Http2Stream) -> None:
        if not stream.done:
            self.finished(stream)
            stream.gone()

    # --- closing and time limits ---

    def _end_reading(self) -> None:
        self._closing = self._parser.stopped = True

    def _fail(self, code: int, message: str) -> None:
        """End the connection with an error, and discard arriving bytes."""
        if self._transport is None or self._closing:
            return
        self._end_reading()
        self._transport.write(h2.goaway(self._last, code, message[:200]))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(self._limits.linger_s, self.abort)
        for stream in list(self.streams.values()):
            self._gone(stream)

    def sweep(self, now: float) -> None:
        """Close the connection if its client is gone or too slow; called each second."""
        self._controls = 0
        if self._transport is None:
            return
        limits, silent_s, since = self._limits, now - self.touched, self._parser.headers_since
        if silent_s > limits.keepalive_s + limits.keepalive_timeout_s or (
            not self._parser.settled and now - self._opened_at > limits.handshake_s
        ):
            self.abort()
        elif since is not None and now - since > limits.handshake_s:
            self._fail(h2.ENHANCE_YOUR_CALM, f"headers: at most {limits.handshake_s:g} s")
        elif silent_s > limits.keepalive_s and self._pinged_at <= self.touched and not self._closing:
            self._pinged_at = now
            self.write(_PING)

    @property
    def unsent(self) -> bool:
        """Some written bytes have not been sent."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def announce(self) -> None:
        """Tell the client to send its next requests elsewhere; :meth:`stop` follows once it has read that."""
        if not self._announced and not self._stopping and not self._closing:
            self._announced = True
            if self._greeted:
                self.write(_ANNOUNCEMENT)

    @property
    def stopped(self) -> bool:
        """Its client knows which request was the last one."""
        return self._stopping or self._closing

    def stop(self) -> None:
        """Accept no more requests, and close once those in progress are answered."""
        if self.stopped:
            return
        self._stopping = True
        if not self._greeted:
            self.close()
            return
        self.write(h2.goaway(self._last, h2.NO_ERROR))
        if not self.streams:
            self._close_in_order()

    def _close_in_order(self) -> None:
        """Leave the end to the client for a moment.

        A socket that is closed with unread bytes in it, acknowledgements for instance, is reset, and what the client
        has not received by then is lost.
        """
        asyncio.get_running_loop().call_later(self._limits.goaway_s, self.close)

    @property
    def idle(self) -> bool:
        """No request is open."""
        return not self.streams and not self._closing

    def evict_idle(self) -> None:
        """Close, so that another client can connect."""
        self.stop()
        self.close()

    def close(self) -> None:
        """Close once everything written was sent."""
        self._end_reading()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def _require_size(size: int, expected: int) -> None:
    if size != expected:
        raise Http2Error(h2.FRAME_SIZE_ERROR, f"frame: has {size} bytes, must have {expected}")


def _require_stream(valid: bool) -> None:
    if not valid:
        raise Http2Error(h2.PROTOCOL_ERROR, "frame: on a stream where it is not allowed")
