"""One client connection: its requests in turn, their answers, and how long it may take over them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from workers import log

from .messages import CLOSE, KEEP_ALIVE, Buffer, Exchange, Headers
from .reading import RequestReader
from .rendering import JOIN_BELOW, render

logger = log.get("gateway.http")

#: seconds without progress after which an unfinished request or an idle connection is closed
READ_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 120.0
#: seconds in all for a head; seconds after which a body must have come with so many bytes/s, on average since its head
HEAD_TIMEOUT_S = 30.0
BODY_GRACE_S, BODY_BYTES_PER_S = 30.0, 4096
#: seconds in which what a refused client still sends is read and thrown away; closing at once would reset the
#: connection and the client would never see why
LINGER_S = 2.0


class HttpConnection(RequestReader):
    """One client connection."""

    # --- transport callbacks ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._server.connections.add(self)
        if len(self._server.connections) > self._server.max_connections:
            self._refuse(503, f"connections: at most {self._server.max_connections} at a time")

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.buffered_bytes -= self._reading_bytes
        self._reading_bytes = 0
        self._closing = True
        # The body goes with its count, not when the garbage collector comes by.
        self._reading = self._raw = self._pieces = None
        self._body = bytearray()
        self._waiting.clear()
        active, self._active = self._active, None
        if active is not None and not active.done:
            active.done = True
            self._server.active -= 1
            self._server.disconnected(active)
            active.waiter = None
        self._transport = None
        self._parser = None
        self._server.check_idle()

    def eof_received(self) -> None:
        """The client sends nothing more: the transport closes."""

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._next()

    # --- answering ---

    def _begin(self, exchange: Exchange) -> None:
        """From here on the exchange counts as one that the server works on, until it is answered or given up."""
        self._active = exchange
        self._server.active += 1

    def _take(self, exchange: Exchange) -> None:
        if self._active is None and not self._write_paused:
            self._begin(exchange)
            self._start(exchange)
        else:
            self._waiting.append(exchange)

    def _start(self, exchange: Exchange) -> None:
        try:
            self._server.handle(exchange)
        except Exception as error:
            logger.error("http_handler_failed", exc_info=error)
            if not exchange.done:
                exchange.respond(*self._server.render_error(500, "internal error"), close=True)

    def _next(self) -> None:
        if self._waiting and self._active is None and not self._write_paused and not self._closing:
            exchange = self._waiting.popleft()
            if not self._waiting:
                self._transport.resume_reading()
            # From the loop, not from here: a long pipeline of quick answers would otherwise recurse.
            self._begin(exchange)
            asyncio.get_running_loop().call_soon(self._start_later, exchange)

    def _start_later(self, exchange: Exchange) -> None:
        if self._active is exchange and not exchange.done:
            exchange.read_at = time.monotonic()
            self._start(exchange)

    def write_success(self, exchange: Exchange, rest: bytes) -> bool:
        """See :meth:`Exchange.succeed`."""
        server = self._server
        if self._active is not exchange:
            return False
        if exchange.afterwards or server.stopping:
            if exchange.afterwards != KEEP_ALIVE or server.stopping:
                return self._write_last(exchange, server.ok, CLOSE, rest)
            rest = KEEP_ALIVE + rest
        self._active = None
        server.active -= 1
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if len(rest) < JOIN_BELOW:
            transport.write(server.ok + rest)
        else:
            transport.writelines([server.ok, rest])
        if self._waiting:
            self._next()
        return True

    def write_response(
        self, exchange: Exchange, status: int, headers: Headers, body: Sequence[Buffer], close: bool
    ) -> bool:
        """See :meth:`Exchange.respond`."""
        if self._active is not exchange:
            return False
        afterwards = CLOSE if close or self._server.stopping else exchange.afterwards
        data = render(status, self._server.date, headers, body, afterwards, exchange.head.method == b"HEAD")
        if afterwards == CLOSE:
            return self._write_last(exchange, *data)
        self._active = None
        self._server.active -= 1
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        transport.writelines(data)
        self._next()
        return True

    def _write_last(self, exchange: Exchange, *data: Buffer) -> bool:
        self._active = None
        self._server.active -= 1
        transport = self._transport
        written = transport is not None and not transport.is_closing()
        if written:
            transport.writelines(data)
            self._closing = True
            transport.close()
        self._server.check_idle()
        return written

    # --- refusing and closing ---

    def _refuse_with(self, status: int, headers: Headers, body: Sequence[Buffer]) -> None:
        """Answer now and read on only to throw away, so that the client gets to read the answer."""
        self._refused = True
        transport = self._transport
        if transport is None or transport.is_closing() or self._closing or self._lingering or self._no_more:
            return
        if self._active is not None or self._waiting:
            # Earlier requests of this connection are not answered yet; their answers come first and are the last.
            self._no_more = True
            (self._waiting[-1] if self._waiting else self._active).afterwards = CLOSE
            return
        self._lingering = True
        self._transport.writelines(render(status, self._server.date, headers, body, CLOSE, head_only=False))
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.close)

    def close(self) -> None:
        """Close once what was written is sent."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    @property
    def owed(self) -> bool:
        """Whether a request is on its way: it has begun to arrive, or the connection was made for one."""
        return not self._closing and (self._reading is not None or self.touched == self._made)

    def shut(self) -> None:
        """The server stops: close now where nothing is in progress, otherwise after the answer."""
        if self._active is None and not self._waiting:
            self.close()

    # --- patience ---

    def sweep(self, now: float) -> None:
        """Close the connection where its client makes no progress (called every few seconds)."""
        if self._closing and self._transport is not None and now - self.touched > IDLE_TIMEOUT_S:
            # Its client does not take the rest of what was written.
            self._transport.abort()
            return
        if self._active is not None or self._closing or self._lingering:
            # While a request is worked on the next one may not have been read for the server's own reasons.
            self._since = now
            return
        if self._write_paused and now - self.touched > IDLE_TIMEOUT_S:
            # It does not read its answers; what waits for it would wait for ever.
            self._transport.abort()
        elif self._reading is not None and now - self.touched > READ_TIMEOUT_S:
            self._refuse(408, f"request: nothing arrived for {READ_TIMEOUT_S:g} s")
        elif self._reading is not None and self._slow(now - self._since):
            if self._head_read:
                self._refuse(408, f"body: at least {BODY_BYTES_PER_S} bytes/s on average after {BODY_GRACE_S:g} s")
            else:
                self._refuse(408, f"request line and headers: at most {HEAD_TIMEOUT_S:g} s")
        elif self._reading is None and not self._waiting and now - self.touched > IDLE_TIMEOUT_S:
            self.close()

    def _slow(self, elapsed_s: float) -> bool:
        if self._write_paused or self._waiting:
            self._since += elapsed_s
            return False
        if not self._head_read:
            return elapsed_s > HEAD_TIMEOUT_S
        return elapsed_s > BODY_GRACE_S and self._reading_bytes < BODY_BYTES_PER_S * elapsed_s
