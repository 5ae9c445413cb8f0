"""One client connection: its requests in turn, their answers, and how long it may take over them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from workers import log

from .messages import CLOSE, KEEP_ALIVE, Buffer, Exchange, Headers
from .reading import TOO_MANY, RequestReader
from .rendering import JOIN_BELOW, render
from .shared import Shared

logger = log.get("gateway.http")

#: seconds without progress after which an unfinished request or an idle connection is closed
READ_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 120.0
#: seconds in all for a head
HEAD_TIMEOUT_S = 30.0
#: each so many seconds of a body must bring so many bytes/s on average: what came before counts no more
BODY_PERIOD_S, BODY_BYTES_PER_S = 30.0, 4096
#: seconds in which what a refused client still sends is read and thrown away; closing at once would reset the
#: connection and the client would never see why
LINGER_S = 2.0
#: what a request that waits for others is counted with beside its body: with its head it takes about as much memory
WAITS_BYTES = 1024


class HttpConnection(RequestReader):
    """One client connection."""

    def __init__(self, server: Shared):
        super().__init__(server)
        #: bytes that are counted for requests that wait, and for answers that the client does not take
        self._waiting_bytes = self._unsent = 0
        #: the answer to a request that was refused behind others
        self._refusal: tuple[int, Headers, Sequence[Buffer]] | None = None
        #: bytes that were written and not sent when that was last looked at
        self._unwritten = 0

    # --- transport callbacks ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._server.connections.add(self)
        if len(self._server.connections) > self._server.max_connections:
            self._refuse(503, f"connections: at most {self._server.max_connections} at a time")

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._closing = True
        # Bodies go with their count, not when the garbage collector comes by.
        self._let_go()
        self._reading = self._raw = None
        self._waiting.clear()
        self._count_waiting(-self._waiting_bytes)
        self._count_unsent(0)
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
        self.count_unsent()
        if self._server.unsent_bytes > self._server.max_buffered_bytes:
            self._server.abort_unread()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._count_unsent(0)
        self._next()

    @property
    def held_bytes(self) -> int:
        """Bytes of the shared buffer that this connection holds: of a body that is being read, and of requests that
        wait."""
        return self._reading_bytes + self._waiting_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client did not take, when that was last counted."""
        return self._unsent

    def count_unsent(self) -> None:
        """Count the bytes that the client has not taken by now."""
        self._count_unsent(self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def evict(self) -> None:
        """Refuse the body that is being read and the requests that wait: others need the room."""
        self._waiting.clear()
        self._count_waiting(-self._waiting_bytes)
        if self._transport is not None and not self._transport.is_closing():
            # Out of memory of its own, if the body is read into that.
            self._read_by(self)
        self._refuse(503, TOO_MANY, retry=True)

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._count_unsent(0)
        if self._transport is not None:
            self._transport.abort()

    def _count_unsent(self, size: int) -> None:
        self._server.unsent_bytes += size - self._unsent
        self._unsent = size

    def _count_waiting(self, size: int) -> None:
        self._server.buffered_bytes += size
        self._waiting_bytes += size

    # --- answering ---

    def _begin(self, exchange: Exchange) -> None:
        """From here on the exchange counts as one that the server works on, until it is answered or given up."""
        self._active = exchange
        self._server.active += 1

    def _take(self, exchange: Exchange) -> None:
        if self._active is None and not self._write_paused:
            self._begin(exchange)
            if self._first:
                self._first = False
                self._start(exchange)
            else:
                # One read may hold thousands that are answered at once, and others have their turn between them.
                asyncio.get_running_loop().call_soon(self._start_later, exchange)
            return
        size = WAITS_BYTES + len(exchange.body)
        server = self._server
        if server.buffered_bytes + size > server.max_buffered_bytes and not server.make_room(self.held_bytes, size):
            self._refuse(503, TOO_MANY, retry=True)
            return
        self._count_waiting(size)
        self._waiting.append(exchange)

    def _start(self, exchange: Exchange) -> None:
        try:
            self._server.handle(exchange)
        except Exception as error:
            logger.error("http_handler_failed", exc_info=error)
            if not exchange.done:
                exchange.respond(*self._server.render_error(500, "internal error"), close=True)

    def _next(self) -> None:
        if self._active is not None or self._write_paused or self._closing:
            return
        if self._waiting:
            exchange = self._waiting.popleft()
            self._count_waiting(-WAITS_BYTES - len(exchange.body))
            if not self._waiting:
                self._transport.resume_reading()
            # From the loop, not from here: a long pipeline of quick answers would otherwise recurse.
            self._begin(exchange)
            asyncio.get_running_loop().call_soon(self._start_later, exchange)
        elif self._refusal is not None and not self._transport.is_closing():
            refusal, self._refusal = self._refusal, None
            self._refuse_now(*refusal)

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
        if self._waiting or self._no_more:
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
        self._let_go()
        transport = self._transport
        if transport is None or transport.is_closing() or self._closing or self._lingering or self._no_more:
            return
        if self._active is not None or self._waiting:
            # Earlier requests of this connection are not answered yet; their answers come first.
            self._no_more = True
            self._refusal = status, headers, body
            return
        self._refuse_now(status, headers, body)

    def _refuse_now(self, status: int, headers: Headers, body: Sequence[Buffer]) -> None:
        self._lingering = True
        transport = self._transport
        transport.writelines(render(status, self._server.date, headers, body, CLOSE, head_only=False))
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

    @property
    def unsent(self) -> bool:
        """Whether something that was written has not gone to the client yet."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def shut(self) -> None:
        """The server stops: close now where nothing is in progress, otherwise after the answer."""
        if self._active is None and not self._waiting:
            self.close()

    # --- patience ---

    def sweep(self, now: float) -> None:
        """Close the connection where its client makes no progress (called every few seconds)."""
        unwritten = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if unwritten != self._unwritten:
            # It was given something, or takes it.
            self._unwritten, self.touched = unwritten, now
        if self._closing and self._transport is not None and now - self.touched > IDLE_TIMEOUT_S:
            # Its client does not take the rest of what was written.
            self._transport.abort()
            return
        if self._active is not None or self._closing or self._lingering:
            # While a request is worked on the next one may not have been read for the server's own reasons.
            self._since, self._since_bytes = now, self._reading_bytes
            return
        if self._write_paused and now - self.touched > IDLE_TIMEOUT_S:
            # It does not read its answers; what waits for it would wait for ever.
            self._transport.abort()
        elif self._reading is not None and now - self.touched > READ_TIMEOUT_S:
            self._refuse(408, f"request: nothing arrived for {READ_TIMEOUT_S:g} s")
        elif self._reading is not None and self._slow(now - self._since):
            if self._head_read:
                self._refuse(408, f"body: at least {BODY_BYTES_PER_S} bytes/s on average over {BODY_PERIOD_S:g} s")
            else:
                self._refuse(408, f"request line and headers: at most {HEAD_TIMEOUT_S:g} s")
        elif self._reading is None and not self._waiting and now - self.touched > IDLE_TIMEOUT_S:
            self.close()

    def _slow(self, elapsed_s: float) -> bool:
        if self._write_paused or self._waiting:
            self._since += elapsed_s
            self._since_bytes = self._reading_bytes
            return False
        if not self._head_read:
            return elapsed_s > HEAD_TIMEOUT_S
        if elapsed_s <= BODY_PERIOD_S:
            return False
        came = self._reading_bytes - self._since_bytes
        self._since += elapsed_s
        self._since_bytes = self._reading_bytes
        return came < BODY_BYTES_PER_S * elapsed_s
