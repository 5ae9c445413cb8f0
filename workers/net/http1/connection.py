"""One client connection: requests in order, responses, memory and time limits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from workers.net.admission import peer_address
from workers.net.limits import JOIN_BYTES
from workers.net.progress import Progress

from .messages import CLOSE, KEEP_ALIVE, Buffer, Exchange, Headers, RequestHead, Response, render
from .parser import RequestParser

logger = logging.getLogger(__name__)

OVERLOADED = "too many request bodies are being read at once; try again"


class HttpConnection(asyncio.Protocol):
    """A client's connection to a :class:`~.server.HttpServer`; its parser's sink.

    Attributes:
        touched: ``time.monotonic()`` of the latest progress.
        address: see :func:`.admission.peer_address`.
        holder: see :class:`.admission.Connections`.
        unsent_bytes: of responses that the client had not read when they were last counted.
    """

    def __init__(self, server: Any):
        self._server = server
        self._limits = server.limits
        self._parser = RequestParser(self, server.limits, server.known_heads)
        self._transport: asyncio.Transport | None = None
        #: the request that is being handled; the next ones wait
        self._active: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        #: a request of the present read was handled: further ones are handled in later turns of the event loop
        self._handled = False
        #: bytes counted in the server's buffer: of the body that is being read, and of requests that wait
        self._reading_bytes = self._waiting_bytes = 0
        #: part of the latter: bytes that are not parsed yet
        self._rest_bytes = 0
        self.unsent_bytes = 0
        #: since a head or a body is due
        self._progress = Progress(server.limits.body_rate)
        self._direct = False
        #: the rejection that follows the responses to earlier requests
        self._rejection: Response | None = None
        #: the last response was written, and arriving bytes are discarded
        self._lingering = False
        self._closing = False
        self._write_paused = False
        #: bytes in the transport's buffer at the latest sweep
        self._unwritten = 0
        self.address = self.holder = ""
        self._opened_at = self.touched = time.monotonic()

    @property
    def peer(self) -> str:
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return peer[0] if isinstance(peer, tuple) else ""

    @property
    def held_bytes(self) -> int:
        return self._reading_bytes + self._waiting_bytes

    # --- called by the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.address = self.holder = peer_address(transport)
        refusal = self._server.connections.open(self)
        if refusal is not None:
            self._reject(503, refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.close(self)
        self._closing = True
        # Without reference cycles, bodies are freed now and not by the garbage collector.
        self._parser.close()
        self._count_reading(-self._reading_bytes)
        self._drop_waiting()
        self._count_unsent(0)
        active, self._active = self._active, None
        if active is not None and not active.done:
            active.done = True
            self._server.active -= 1
            self._server.handler.disconnected(active)
            active.waiter = None
        self._transport = None

    def eof_received(self) -> None:
        """Let the transport close: a client that sends nothing more is gone."""

    def pause_writing(self) -> None:
        self._write_paused = True
        self.count_unsent()
        if self._server.unsent_bytes > self._limits.buffered_bytes:
            self._server.abort_unread()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._count_unsent(0)
        self._next()

    def data_received(self, data: bytes) -> None:
        before, self.touched = self.touched, time.monotonic()
        self._handled = False
        parser = self._parser
        parser.feed(data)
        if parser.rest:
            self._keep_rest()
        if not self._handled and self._active is None and parser.head is None:
            # Line ends between requests are no progress.
            self.touched = before

    def _feed_rest(self) -> None:
        if self._closing or self._lingering:
            return
        rest, self._parser.rest = self._parser.rest, b""
        self._count_waiting(-self._rest_bytes)
        self._rest_bytes = 0
        self._parser.feed(rest)
        if self._parser.rest:
            self._keep_rest()
        elif not self._waiting:
            self._transport.resume_reading()

    def _keep_rest(self) -> None:
        size = len(self._parser.rest)
        if self._server.reserve(self, size):
            self._rest_bytes = size
            self._waiting_bytes += size
        else:
            self._reject(503, OVERLOADED)

    def full(self) -> bool:
        """Whether enough requests wait: the bytes behind them become the parser's ``rest``."""
        return len(self._waiting) >= self._limits.waiting

    def body_read(self, size: int) -> None:
        self.touched = time.monotonic()
        self._handled = False
        if len(self._parser.space) == size:
            self._read_with(self)
        self._parser.filled(size)

    def _read_with(self, protocol: asyncio.BaseProtocol) -> None:
        # Transports choose between both ways of reading when reading starts.
        self._direct = protocol is not self
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()

    # --- called by the parser ---

    def on_begin(self) -> None:
        self._progress.restart(self.touched, 0)
        self.holder = self._parser.head.client or self.holder

    def on_head(self, head: RequestHead) -> None:
        """A complete head that is not known, to be remembered unless this stops."""
        self._progress.restart(self.touched, 0)
        rejection = self._server.handler.preflight(head)
        self.holder = head.client or self.holder
        if rejection is not None:
            self._reject_with(rejection)
        elif self._active is None and head.headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, size: int) -> None:
        if self._server.reserve(self, size):
            self._reading_bytes += size
        else:
            self._reject(503, OVERLOADED)

    def on_large_body(self) -> None:
        """Much of the body is missing."""
        self._read_with(_DirectReader(self, self._parser))

    def on_request(self, head: RequestHead, body: Buffer) -> None:
        if self._reading_bytes:
            self._count_reading(-self._reading_bytes)
        if head.client:
            self.holder = head.client
        exchange = Exchange(self, head, body, self.touched)
        if self._active is not None or self._write_paused:
            self._enqueue(exchange)
            return
        self._active = exchange
        self._server.active += 1
        if self._handled:
            # One read may hold thousands of requests, and other connections need the event loop, too.
            asyncio.get_running_loop().call_soon(self._handle_later, exchange)
            return
        self._handled = True
        try:
            self._server.handle(exchange)
        except Exception as error:
            self._handler_failed(exchange, error)

    def on_error(self, status: int, message: str) -> None:
        self._reject(status, message)

    # --- requests in order ---

    def _enqueue(self, exchange: Exchange) -> None:
        size = self._limits.waiting_bytes + len(exchange.body)
        if not self._server.reserve(self, size):
            self._reject(503, OVERLOADED)
            return
        self._waiting_bytes += size
        self._waiting.append(exchange)
        # A pipelining client is read no faster than it is answered.
        self._transport.pause_reading()

    def _next(self) -> None:
        """Handle the next request that waits, or send the rejection behind the last one."""
        if self._active is not None or self._write_paused or self._closing or self._lingering:
            return
        if self._waiting:
            self._active = exchange = self._waiting.popleft()
            self._server.active += 1
            self._count_waiting(-self._limits.waiting_bytes - len(exchange.body))
            if not self._waiting and self._parser.rest:
                asyncio.get_running_loop().call_soon(self._feed_rest)
            elif not self._waiting:
                self._transport.resume_reading()
            # From the event loop: a long pipeline of immediate responses would recurse.
            asyncio.get_running_loop().call_soon(self._handle_later, exchange)
        elif self._rejection is not None and not self._transport.is_closing():
            self._linger(self._rejection)

    def _handle_later(self, exchange: Exchange) -> None:
        if self._active is not exchange or exchange.done:
            return
        exchange.read_at = time.monotonic()
        try:
            self._server.handle(exchange)
        except Exception as error:
            self._handler_failed(exchange, error)

    def _handler_failed(self, exchange: Exchange, error: Exception) -> None:
        logger.error("http_handler_failed", exc_info=error)
        if not exchange.done:
            exchange.respond(*self._server.handler.render_error(500, "internal error"), close=True)

    def _drop_waiting(self) -> None:
        self._waiting.clear()
        self._parser.rest, self._rest_bytes = b"", 0
        self._count_waiting(-self._waiting_bytes)

    # --- responses ---

    def write_success(self, exchange: Exchange, rest: bytes) -> bool:
        server = self._server
        if self._active is not exchange:
            return False
        persistence = exchange.head.persistence
        if persistence or server.stopping:
            if persistence != KEEP_ALIVE or server.stopping:
                return self._write_last(server.ok, CLOSE, rest)
            rest = KEEP_ALIVE + rest
        self._active = None
        server.active -= 1
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if len(rest) < JOIN_BYTES:
            transport.write(server.ok + rest)
        else:
            transport.writelines([server.ok, rest])
        if self._waiting or self._rejection is not None:
            self._next()
        return True

    def write_response(
        self, exchange: Exchange, status: int, headers: Headers, body: Sequence[Buffer], close: bool
    ) -> bool:
        if self._active is not exchange:
            return False
        head = exchange.head
        persistence = CLOSE if close or self._server.stopping else head.persistence
        data = render((status, headers, body), self._server.date, persistence, head.method == b"HEAD")
        if persistence == CLOSE:
            return self._write_last(*data)
        self._active = None
        self._server.active -= 1
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        transport.writelines(data)
        self._next()
        return True

    def _write_last(self, *data: Buffer) -> bool:
        self._active = None
        self._server.active -= 1
        transport = self._transport
        written = transport is not None and not transport.is_closing()
        if written:
            transport.writelines(data)
            self.close()
        return written

    # --- rejections and closing ---

    def _reject(self, status: int, message: str) -> None:
        self._reject_with(self._server.handler.render_error(status, message))

    def _reject_with(self, response: Response) -> None:
        """Respond behind earlier requests, and discard everything that arrives."""
        self._parser.stop()
        self._count_reading(-self._reading_bytes)
        transport = self._transport
        if transport is None or transport.is_closing() or self._closing or self._lingering or self._rejection:
            return
        if self._direct:
            self._read_with(self)
        if self._active is not None or self._waiting:
            self._rejection = response
        else:
            self._linger(response)

    def _linger(self, response: Response) -> None:
        self._lingering = True
        transport = self._transport
        transport.writelines(render(response, self._server.date, CLOSE, head_only=False))
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(self._limits.linger_s, self.close)

    def evict(self) -> None:
        """Reject the request that is read and those that wait: others need the memory."""
        self._drop_waiting()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._reject(503, OVERLOADED)

    def close(self) -> None:
        self._closing = True
        self._parser.stop()
        if self._transport is not None:
            self._transport.close()

    def close_idle(self) -> None:
        if self._active is None and not self._waiting:
            self.close()

    def abort(self) -> None:
        self._count_unsent(0)
        if self._transport is not None:
            self._transport.abort()

    # --- accounting ---

    @property
    def expects_response(self) -> bool:
        """A request has begun to arrive, or the connection was just opened for one."""
        return not self._closing and (self._parser.head is not None or self.touched == self._opened_at)

    @property
    def idle(self) -> bool:
        busy = self._active is not None or self._waiting or self._lingering or self._closing
        return not busy and not (self._parser.head is not None and self._parser.head_complete)

    def evict_idle(self) -> None:
        self.close()

    @property
    def unsent(self) -> bool:
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def count_unsent(self) -> None:
        self._count_unsent(self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def _count_unsent(self, size: int) -> None:
        self._server.unsent_bytes += size - self.unsent_bytes
        self.unsent_bytes = size

    def _count_reading(self, size: int) -> None:
        self._server.buffered_bytes += size
        self._reading_bytes += size

    def _count_waiting(self, size: int) -> None:
        self._server.buffered_bytes += size
        self._waiting_bytes += size

    # --- time limits ---

    def sweep(self, now: float) -> None:
        """Close or reject for want of progress; called every few seconds."""
        limits, transport = self._limits, self._transport
        unwritten = transport.get_write_buffer_size() if transport is not None else 0
        if unwritten != self._unwritten:
            # Bytes were written, or the client read some.
            self._unwritten, self.touched = unwritten, now
        idle_s, receiving = now - self.touched, self._parser.head is not None
        if self._closing and transport is not None and idle_s > limits.idle_s:
            # The client does not read the last response.
            transport.abort()
        elif self._active is not None or self._closing or self._lingering:
            # The next request may not have been read for the server's own reasons.
            self._progress.restart(now, self._reading_bytes)
        elif self._write_paused and idle_s > limits.idle_s:
            transport.abort()
        elif receiving and idle_s > limits.read_s:
            self._reject(408, f"request: nothing arrived for {limits.read_s:g} s")
        elif receiving and (limit := self._too_slow(now)):
            self._reject(408, limit)
        elif not receiving and not self._waiting and idle_s > limits.idle_s:
            self.close()

    def _too_slow(self, now: float) -> str:
        if self._write_paused or self._waiting:
            # The server itself does not read.
            self._progress.restart(now, self._reading_bytes)
            return ""
        if not self._parser.head_complete:
            head_s = self._limits.head_s
            return f"request line and headers: at most {head_s:g} s" if now - self._progress.since > head_s else ""
        rate = self._limits.body_rate
        return f"body: {rate}" if self._progress.slow(now, self._reading_bytes) else ""


class _DirectReader(asyncio.BufferedProtocol):
    def __init__(self, connection: HttpConnection, parser: RequestParser):
        self._parser = parser
        self.buffer_updated, self.connection_lost = connection.body_read, connection.connection_lost
        self.pause_writing, self.resume_writing = connection.pause_writing, connection.resume_writing

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._parser.space
