"""One client connection over HTTP/2: its streams, its flow control in both directions, and its life (RFC 9113)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from workers import log
from workers.protocol.tensors import Buffer

from . import frames as h2
from .frames import Http2Error
from .heads import MOST_BYTES, Head, Heads, Malformed
from .reading import DATA_FRAME, Reader
from .stream import Stream

logger = log.get("gateway.grpc")

#: bytes that a client may send unread on one stream and on one connection
STREAM_WINDOW, CONNECTION_WINDOW = 1024 * 1024, 8 * 1024 * 1024
#: streams of one connection at once
STREAMS = 1024
#: requests of one read that begin before others have their turn
TURN = 256
#: frames other than requests and their data that one connection may send in a second
CONTROLS = 20_000
#: a connection without a greeting, or with half a head, is given up after so many seconds; one that says nothing for so
#: long is asked whether it is still there, and given up where it says nothing even then
GREETING_S, KEEPALIVE_S, KEEPALIVE_TIMEOUT_S = 20.0, 120.0, 20.0

#: seconds in which what a client still sends is thrown away; closing at once would reset the connection, and the client
#: would never see why
LINGER_S = 2.0

_SETTINGS = h2.settings(
    {
        h2.MAX_CONCURRENT_STREAMS: STREAMS,
        h2.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        h2.MAX_FRAME_SIZE: DATA_FRAME,
        h2.MAX_HEADER_LIST_SIZE: MOST_BYTES,
    }
) + h2.window_update(0, CONNECTION_WINDOW - h2.WINDOW)
_SETTINGS_ACK = h2.frame(h2.SETTINGS, h2.ACK, 0)
_PING = h2.frame(h2.PING, 0, 0, b"stillup?")


class Server(Protocol):
    """Who the connections belong to."""

    connections: set[Connection]
    #: streams that are open, of all connections
    streams: int

    def full(self) -> bool:
        """Whether there are as many connections as there may be."""

    def open(self, connection: Connection, number: int, head: Head) -> Stream:
        """A stream for a request with this head; it may end it at once."""

    def closed(self, connection: Connection) -> None:
        """A connection has ended, or has no stream any more."""


class Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, server: Server):
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._heads = Heads()
        self._reader = Reader()
        self.streams: dict[int, Stream] = {}
        #: bytes that its streams hold: of messages that are being read, and of answers that the client does not take
        self.reading_bytes = self.unsent_bytes = 0
        # What a stream sees of its connection: see :class:`.stream.Carrier`.
        self.blocked: dict[int, Stream] = {}
        self.window = self.initial_window = h2.WINDOW
        self.frame = h2.FRAME
        self.paused = False
        self.touched = time.monotonic()
        self._opened_at = self.touched
        self._asked_at = 0.0
        self._controls = 0
        #: requests that have begun in this turn, and whether what was read goes on in the next
        self._begun, self._later = 0, False
        self._closing = self._stopping = False
        self._last = 0
        self._unread = 0

    # --- transport callbacks ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        full = self._server.full()
        self._server.connections.add(self)
        if full:
            self._fail(h2.ENHANCE_YOUR_CALM, "connections: as many as there may be are open")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_reading()
        self._transport = None
        self._reader.rest = b""
        for stream in list(self.streams.values()):
            self._gone(stream)
        self._server.connections.discard(self)
        self._server.closed(self)

    def pause_writing(self) -> None:
        # Whoever does not take what it gets is not read either.
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
            self._reader.rest += data
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        reader = self._reader
        self._begun, reader.stopped = 0, False
        try:
            reader.read(data, self.touched, self)
        except Http2Error as error:
            self._fail(error.code, str(error))
        except Exception:
            logger.exception("grpc_connection_failed")
            self._fail(h2.INTERNAL_ERROR, "internal error")
        if self._begun >= TURN and not self._closing and not self._transport.is_closing():
            # One read may hold thousands that are answered at once.
            self._later = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Others had their turn."""
        self._later = False
        if self._transport is None or self._closing:
            return
        self._take(b"")
        if not self._later and not self.paused and not self._closing and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- frames ---

    def on_greeting(self) -> None:
        """See :class:`.reading.Taker`."""
        self.write(_SETTINGS)

    def on_data(self, number: int, payload: Buffer, length: int, end: bool) -> None:
        """See :class:`.reading.Taker`."""
        self._unread += length
        if self._unread > CONNECTION_WINDOW:
            raise Http2Error(h2.FLOW_CONTROL_ERROR, "DATA: more than the connection's window")
        if self._unread >= CONNECTION_WINDOW // 2:
            self.write(h2.window_update(0, self._unread))
            self._unread = 0
        stream = self.streams.get(number)
        if stream is None or not stream.reading:
            if number > self._last or not number & 1:
                raise Http2Error(h2.PROTOCOL_ERROR, "DATA: on a stream that is not open")
            if stream is not None:
                raise Http2Error(h2.STREAM_CLOSED, "DATA: behind a stream's end")
            if not payload:
                self._control()
            return
        if payload:
            stream.moved = self.touched
        elif not end:
            # Nothing that its client makes progress by.
            self._control()
        stream.unread += length
        if stream.unread > STREAM_WINDOW:
            raise Http2Error(h2.FLOW_CONTROL_ERROR, "DATA: more than the stream's window")
        if end:
            stream.reading = False
        stream.received(payload, end)
        if stream.unread >= STREAM_WINDOW // 2:
            self.give_room(stream)

    def give_room(self, stream: Stream) -> None:
        """Let a stream's client send on, unless it is to wait."""
        if stream.reading and not stream.held and not stream.done and stream.unread:
            self.write(h2.window_update(stream.number, stream.unread))
            stream.unread = 0

    def on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """See :class:`.reading.Taker`."""
        self._control()
        size = len(payload)
        if kind == h2.WINDOW_UPDATE:
            _long(size, 4)
            self._on_window(number, h2.unpack_u32(payload)[0] & h2.MOST_WINDOW)
        elif kind == h2.PING:
            _long(size, 8)
            _place(not number)
            if not flags & h2.ACK:
                self.write(h2.frame(h2.PING, h2.ACK, 0, payload))
        elif kind == h2.SETTINGS:
            _place(not number)
            self._on_settings(flags, payload)
        elif kind == h2.RST_STREAM:
            _long(size, 4)
            _place(0 < number <= self._last)
            stream = self.streams.get(number)
            if stream is not None:
                stream.reading = False
                self._gone(stream)
        elif kind == h2.PRIORITY:
            _long(size, 5)
            _place(number > 0)
            if h2.unpack_u32(payload)[0] & h2.MOST_WINDOW == number:
                raise Http2Error(h2.PROTOCOL_ERROR, "PRIORITY: a stream cannot depend on itself")
        elif kind == h2.GOAWAY:
            _place(not number)
        elif kind == h2.PUSH_PROMISE:
            raise Http2Error(h2.PROTOCOL_ERROR, "PUSH_PROMISE: clients do not push")
        # Kinds that nobody knows are ignored (RFC 9113, section 4.1).

    def _control(self, weight: int = 1) -> None:
        self._controls += weight
        if self._controls > CONTROLS:
            raise Http2Error(h2.ENHANCE_YOUR_CALM, f"at most {CONTROLS} frames of control a second")

    # --- heads ---

    def on_head(self, number: int, block: bytes, end: bool) -> None:
        """See :class:`.reading.Taker`."""
        stream = self.streams.get(number)
        if stream is not None or number <= self._last:
            self._on_trailers(number, stream, block, end)
            return
        self._last = number
        try:
            # Whatever becomes of the request: the table must be kept as the client keeps it.
            head = self._heads.read(block)
        except Malformed:
            self.write(h2.rst_stream(number, h2.PROTOCOL_ERROR))
            return
        if self._stopping or len(self.streams) >= STREAMS:
            # Not begun: clients may send it again, elsewhere (RFC 9113, section 8.7).
            self.write(h2.rst_stream(number, h2.REFUSED_STREAM))
            return
        self._begun += 1
        if self._begun >= TURN:
            self._reader.stopped = True
        stream = self._server.open(self, number, head)
        self.streams[number] = stream
        self._server.streams += 1
        if end:
            stream.reading = False
        stream.opened()
        if end and not stream.done:
            stream.received(b"", True)

    def _on_trailers(self, number: int, stream: Stream | None, block: bytes, end: bool) -> None:
        try:
            self._heads.read(block)
        except Malformed:
            # They have no pseudo fields, and what they say comes too late to matter.
            pass
        if stream is None:
            # It was answered and closed while they were on their way.
            self._control()
            return
        if not stream.reading:
            raise Http2Error(h2.STREAM_CLOSED, "HEADERS: behind a stream's end")
        if not end:
            raise Http2Error(h2.PROTOCOL_ERROR, "HEADERS: within a stream they must be its end")
        stream.reading = False
        stream.received(b"", True)

    # --- settings and windows ---

    def _on_settings(self, flags: int, payload: bytes) -> None:
        if flags & h2.ACK:
            _long(len(payload), 0)
            return
        told = h2.read_settings(payload)
        # All streams may be looked at for each.
        self._control(len(told) * (1 + len(self.streams)))
        for name, value in told:
            if name == h2.INITIAL_WINDOW_SIZE:
                for stream in self.streams.values():
                    stream.window += value - self.initial_window
                    if stream.window > h2.MOST_WINDOW:
                        raise Http2Error(h2.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE: a window is too large")
                    stream.wait()
                self.initial_window = value
            elif name == h2.MAX_FRAME_SIZE:
                # What is larger would be the socket's to keep, where nobody counts it.
                self.frame = min(value, DATA_FRAME)
        self.write(_SETTINGS_ACK)
        self.pump()

    def _on_window(self, number: int, more: int) -> None:
        if not number:
            if not more:
                raise Http2Error(h2.PROTOCOL_ERROR, "WINDOW_UPDATE: must be 1 or more")
            self.window += more
            if self.window > h2.MOST_WINDOW:
                raise Http2Error(h2.FLOW_CONTROL_ERROR, "WINDOW_UPDATE: the window is too large")
        else:
            _place(number <= self._last)
            stream = self.streams.get(number)
            if stream is None:
                return
            stream.window += more
            if not more or stream.window > h2.MOST_WINDOW:
                stream.reading = False
                self.write(h2.rst_stream(number, h2.FLOW_CONTROL_ERROR if more else h2.PROTOCOL_ERROR))
                self._gone(stream)
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
        """As :meth:`write`, of large pieces."""
        if self._transport is not None and not self._closing:
            self._transport.writelines(pieces)

    def pump(self) -> None:
        """Send what waits, a frame of each stream in turn."""
        blocked = self.blocked
        while blocked and self.window > 0 and not self.paused and not self._closing:
            number = next(iter(blocked))
            stream = blocked.pop(number)
            stream.pump()
            stream.wait()

    def finished(self, stream: Stream) -> None:
        """A stream has come to its end."""
        if stream.done:
            return
        stream.done = True
        stream.outbox = None
        self.streams.pop(stream.number, None)
        self.blocked.pop(stream.number, None)
        self._server.streams -= 1
        stream.over()
        if self._stopping and not self.streams:
            self.close()
        if not self.streams:
            self._server.closed(self)

    def _gone(self, stream: Stream) -> None:
        if stream.done:
            return
        self.finished(stream)
        stream.gone()

    # --- life ---

    def _end_reading(self) -> None:
        """Nothing that comes counts any more."""
        self._closing = self._reader.stopped = True

    def _fail(self, code: int, message: str) -> None:
        """End the connection with the reason why."""
        if self._transport is None or self._closing:
            return
        self._end_reading()
        self._transport.write(h2.goaway(self._last, code, message[:200]))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.abort)
        for stream in list(self.streams.values()):
            self._gone(stream)

    def sweep(self, now: float) -> None:
        """Give up a client that is not there any more; called each second."""
        self._controls = 0
        silent_s = now - self.touched
        if self._transport is None:
            return
        if silent_s > KEEPALIVE_S + KEEPALIVE_TIMEOUT_S or (
            not self._reader.settled and now - self._opened_at > GREETING_S
        ):
            self.abort()
        elif self._reader.head_since is not None and now - self._reader.head_since > GREETING_S:
            self._fail(h2.ENHANCE_YOUR_CALM, f"headers: at most {GREETING_S:g} s")
        elif silent_s > KEEPALIVE_S and self._asked_at <= self.touched and not self._closing:
            self._asked_at = now
            self.write(_PING)

    @property
    def unsent(self) -> bool:
        """Whether something that was written has not gone to the client yet."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def stop(self) -> None:
        """Take no more requests, and close once those under way are answered."""
        if self._stopping or self._closing:
            return
        self._stopping = True
        self.write(h2.goaway(self._last, h2.NO_ERROR))
        if not self.streams:
            self.close()

    def close(self) -> None:
        """Close once what was written is sent."""
        self._end_reading()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def _long(size: int, expected: int) -> None:
    if size != expected:
        raise Http2Error(h2.FRAME_SIZE_ERROR, f"frame: has {size} bytes, must have {expected}")


def _place(right: bool) -> None:
    if not right:
        raise Http2Error(h2.PROTOCOL_ERROR, "frame: on a stream where it has no place")
