"""The socket of one client over HTTP/2.

It takes turns in the event loop, keeps time limits, and comes to an orderly end.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Sequence
from typing import Any

from workers.net.admission import peer_address
from workers.net.limits import Http2Limits

from . import frames as h2
from .frames import Buffer, Http2Error
from .handler import LAST_PING, FrameHandler

logger = logging.getLogger(__name__)

_PING = h2.frame(h2.PING, 0, 0, b"stillup?")
#: a first GOAWAY refuses nothing, as requests may be on their way; a client that answers the PING behind it has read it
#: (RFC 9113, section 6.8)
_ANNOUNCEMENT = h2.goaway(h2.MAX_WINDOW, h2.NO_ERROR) + h2.frame(h2.PING, 0, 0, LAST_PING)


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


class Http2Connection(FrameHandler, asyncio.Protocol):
    """One client connection.

    Attributes:
        reading_bytes, unsent_bytes: held by its streams: of requests that are being read, and of responses that the
            client does not read. The server's own, for its limits.
        address: see :func:`.admission.peer_address`.
        holder: see :class:`.admission.Connections`.
    """

    def __init__(self, server: Any, limits: Http2Limits):
        super().__init__(server, limits)
        self._transport: asyncio.Transport | None = None
        self.address = self.holder = ""
        self.reading_bytes = self.unsent_bytes = 0
        self._opened_at = self.touched
        self._pinged_at = 0.0
        #: whether the rest of this read is parsed in the event loop's next turn
        self._later = False
        #: the client was notified that this connection ends
        self._announced = False
        #: the server's SETTINGS, which come before all other frames, are written
        self._greeted = False

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
        for stream in list(self.streams.values()):
            self._gone(stream)
        self._server.connections.close(self)

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

    def on_preface(self) -> None:
        self._greeted = True
        self.write(_preface(self._limits))
        if self._announced:
            self.write(_ANNOUNCEMENT)

    # --- sending ---

    def write(self, data: bytes) -> None:
        if self._transport is not None and data and not self._closing:
            self._transport.write(data)

    def write_all(self, pieces: Sequence[Buffer]) -> None:
        if self._transport is not None and not self._closing:
            self._transport.writelines(pieces)

    def on_idle(self) -> None:
        if self._stopping:
            self._close_in_order()

    # --- closing and time limits ---

    def _end_reading(self) -> None:
        self._closing = self._parser.stopped = True

    def _fail(self, code: int, message: str) -> None:
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
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def announce(self) -> None:
        """Ask the client to send its next requests elsewhere; :meth:`stop` follows."""
        if not self._announced and not self._stopping and not self._closing:
            self._announced = True
            if self._greeted:
                self.write(_ANNOUNCEMENT)

    @property
    def stopped(self) -> bool:
        """Its client knows which request was the last one."""
        return self._stopping or self._closing

    def on_announcement_read(self) -> None:
        if self._announced:
            self.stop()

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
        return not self.streams and not self._closing

    def evict_idle(self) -> None:
        self.stop()
        self.close()

    def close(self) -> None:
        self._end_reading()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
