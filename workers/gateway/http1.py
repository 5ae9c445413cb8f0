"""HTTP/1.1 for the gateway's edge: httptools parses, one protocol object a connection, no task a request.

A handler is called once a request is fully read and answers through :meth:`Exchange.respond`, at once or later from
any callback. One request of a connection is handled at a time; pipelined ones wait their turn. Why this and not an
ASGI server: ``docs/decisions/0002-gateway-http-server.md``.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus

import httptools

from workers import log

logger = log.get("gateway.http")

#: request line and headers together; ample for any client, small enough to hold for each connection
MAX_HEAD_BYTES = 64 * 1024
#: seconds without progress after which an unfinished request or an idle connection is closed
READ_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 120.0
#: seconds in which what a refused client still sends is read and thrown away; closing at once would reset the
#: connection and the client would never see why
LINGER_S = 2.0

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_JOIN_BELOW = 64 * 1024

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[bytes, bytes]]


class Exchange:
    """One request and the way to answer it.

    ``headers``: lower-case names; a repeated header's values are joined by a comma. ``read_at``: ``time.monotonic()``
    when the last byte was there. ``on_disconnect`` may be set by the handler: called once if the client goes away
    before the answer.
    """

    __slots__ = (
        "_connection",
        "body",
        "close",
        "done",
        "headers",
        "keep_alive",
        "method",
        "on_disconnect",
        "query",
        "read_at",
        "state",
        "target",
    )

    def __init__(self, connection: HttpConnection):
        self._connection = connection
        self.method = b""
        self.target = b""
        self.query = b""
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.read_at = 0.0
        self.keep_alive = True
        self.done = False
        self.on_disconnect: Callable[[], None] | None = None
        self.state: object = None
        """what :attr:`HttpServer.preflight` left for the handler"""

    def respond(self, status: int, headers: Headers, body: Sequence[Buffer] = (), close: bool = False) -> bool:
        """Hand the response to the socket. False: the client is gone, or this request was answered already."""
        if self.done:
            return False
        self.done = True
        self.on_disconnect = None
        return self._connection.write_response(self, status, headers, body, close)


class HttpConnection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, server: HttpServer):
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._reading: Exchange | None = None
        self._reading_bytes = 0
        self._head_bytes = 0
        self._waiting: deque[Exchange] = deque()
        self._active: Exchange | None = None
        self._header_name = b""
        self._refused = False
        self._lingering = False
        self._closing = False
        #: a request was refused behind others that are not answered yet: nothing more is read
        self._no_more = False
        self._write_paused = False
        self.touched = time.monotonic()

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
        self._waiting.clear()
        active, self._active = self._active, None
        if active is not None and not active.done:
            active.done = True
            self._server.active -= 1
            if active.on_disconnect is not None:
                active.on_disconnect()
        self._transport = None
        self._parser = None
        self._server.check_idle()

    def data_received(self, data: bytes) -> None:
        self.touched = time.monotonic()
        if self._closing or self._lingering or self._no_more:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # A server may ignore an offer to upgrade; what follows in this connection is no longer understood.
            if self._active is not None:
                self._active.keep_alive = False
            else:
                self.close()
        except httptools.HttpParserError as error:
            self._refuse(400, f"not a valid HTTP request: {error}")
        except Exception as error:
            logger.error("http_connection_failed", exc_info=error)
            self._refuse(500, "internal error")
        if self._waiting and self._transport is not None:
            # A pipelining client is read no faster than it is answered.
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._next()

    # --- parser callbacks ---

    def on_message_begin(self) -> None:
        self._reading = Exchange(self)
        self._head_bytes = 0
        self._refused = False

    def on_url(self, url: bytes) -> None:
        self._reading.target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        headers = self._reading.headers
        known = headers.get(name)
        headers[name] = value if known is None else known + b", " + value
        self._count_head(len(name) + len(value) + 4)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES and not self._refused:
            self._refuse(431, f"request line and headers: at most {MAX_HEAD_BYTES} bytes")

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        exchange = self._reading
        exchange.method = self._parser.get_method()
        exchange.keep_alive = self._parser.should_keep_alive()
        path, _, exchange.query = exchange.target.partition(b"?")
        exchange.target = path
        length = exchange.headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._server.max_body_bytes:
            self._too_large()
            return
        refusal = self._server.preflight(exchange)
        if refusal is not None:
            status, headers, body = refusal
            self._refuse_with(status, headers, body)
            return
        if exchange.headers.get(b"expect", b"").lower() == b"100-continue" and self._active is None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        exchange = self._reading
        size = len(body)
        if len(exchange.body) + size > self._server.max_body_bytes:
            self._too_large()
            return
        if self._server.buffered_bytes + size > self._server.max_buffered_bytes:
            self._refuse(503, "too many request bodies are being read at once; try again", retry=True)
            return
        self._server.buffered_bytes += size
        self._reading_bytes += size
        exchange.body += body

    def on_message_complete(self) -> None:
        self._server.buffered_bytes -= self._reading_bytes
        self._reading_bytes = 0
        exchange, self._reading = self._reading, None
        if self._refused:
            return
        exchange.read_at = time.monotonic()
        if self._active is None and not self._write_paused:
            self._begin(exchange)
            self._start(exchange)
        else:
            self._waiting.append(exchange)

    # --- answering ---

    def _begin(self, exchange: Exchange) -> None:
        """From here on the exchange counts as one that the server works on, until it is answered or given up."""
        self._active = exchange
        self._server.active += 1

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

    def write_response(
        self, exchange: Exchange, status: int, headers: Headers, body: Sequence[Buffer], close: bool
    ) -> bool:
        if self._active is not exchange:
            return False
        self._active = None
        self._server.active -= 1
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        close = close or not exchange.keep_alive or self._server.stopping
        self._write(status, headers, body, close, head_only=exchange.method == b"HEAD")
        if close:
            self._closing = True
            transport.close()
        else:
            self._next()
        self._server.check_idle()
        return True

    def _write(self, status: int, headers: Headers, body: Sequence[Buffer], close: bool, head_only: bool) -> None:
        size = sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in body)
        head = bytearray(_STATUS_LINES[status])
        head += self._server.date_header()
        for name, value in headers:
            head += name + b": " + value + b"\r\n"
        head += b"content-length: %d\r\n" % size
        head += b"connection: close\r\n\r\n" if close else b"\r\n"
        if head_only:
            body = ()
        if size < _JOIN_BELOW:
            for part in body:
                head += part
            self._transport.write(head)
        else:
            self._transport.writelines([head, *body])

    # --- refusing before the request is read ---

    def _too_large(self) -> None:
        self._refuse(413, f"body: at most {self._server.max_body_bytes} bytes")

    def _refuse(self, status: int, message: str, retry: bool = False) -> None:
        status, headers, body = self._server.render_error(status, message)
        if retry:
            headers = [*headers, (b"retry-after", b"1")]
        self._refuse_with(status, headers, body)

    def _refuse_with(self, status: int, headers: Headers, body: Sequence[Buffer]) -> None:
        """Answer now and read on only to throw away, so that the client gets to read the answer."""
        self._refused = True
        transport = self._transport
        if transport is None or transport.is_closing() or self._closing or self._lingering or self._no_more:
            return
        if self._active is not None or self._waiting:
            # Earlier requests of this connection are not answered yet; their answers come first and are the last.
            self._no_more = True
            (self._waiting[-1] if self._waiting else self._active).keep_alive = False
            return
        self._lingering = True
        self._write(status, headers, body, close=True, head_only=False)
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.close)

    def close(self) -> None:
        """Close once what was written is sent."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def sweep(self, now: float) -> None:
        """Close the connection where its client makes no progress (called every few seconds)."""
        if self._closing and self._transport is not None and now - self.touched > IDLE_TIMEOUT_S:
            # Its client does not take the rest of what was written.
            self._transport.abort()
            return
        if self._active is not None or self._closing or self._lingering:
            return
        if self._write_paused and now - self.touched > IDLE_TIMEOUT_S:
            # It does not read its answers; what waits for it would wait for ever.
            self._transport.abort()
        elif self._reading is not None and now - self.touched > READ_TIMEOUT_S:
            self._refuse(408, f"request: nothing arrived for {READ_TIMEOUT_S:g} s")
        elif self._reading is None and not self._waiting and now - self.touched > IDLE_TIMEOUT_S:
            self.close()

    def shut(self) -> None:
        """The server stops: close now where nothing is in progress, otherwise after the answer."""
        if self._active is None and not self._waiting:
            self.close()


class HttpServer:
    """Listens and keeps what the connections share.

    Args:
        handle: called with each fully read :class:`Exchange`.
        preflight: called with headers complete and the body not yet read; returns None to go on, or the response that
            refuses it: (status, headers, body).
        render_error: how this server words its own errors: (status, message) -> (status, headers, body).
        max_body_bytes: largest request body. max_buffered_bytes: all bodies that are being read, together.
    """

    def __init__(
        self,
        handle: Callable[[Exchange], None],
        preflight: Callable[[Exchange], tuple[int, Headers, Sequence[Buffer]] | None],
        render_error: Callable[[int, str], tuple[int, Headers, Sequence[Buffer]]],
        max_body_bytes: int,
        max_buffered_bytes: int,
        max_connections: int = 4096,
    ):
        self.handle = handle
        self.preflight = preflight
        self.render_error = render_error
        self.max_body_bytes = max_body_bytes
        self.max_buffered_bytes = max_buffered_bytes
        self.max_connections = max_connections
        self.connections: set[HttpConnection] = set()
        self.buffered_bytes = 0
        self.active = 0
        self.stopping = False
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task | None = None
        self._date = (0, b"")
        self._idle = asyncio.Event()

    async def start(self, host: str, port: int, reuse_port: bool = False) -> None:
        """Listen; with ``reuse_port`` beside other processes that do so too.

        Raises:
            OSError: the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(self), host, port, backlog=1024, reuse_port=reuse_port
        )
        self._sweeper = asyncio.create_task(self._sweep())

    @property
    def port(self) -> int:
        return self._server.sockets[0].getsockname()[1]

    async def drain(self, grace_s: float) -> None:
        """Accept nothing more, and let requests in progress finish for up to ``grace_s``."""
        self.stopping = True
        self._server.close()
        self._sweeper.cancel()
        for connection in list(self.connections):
            connection.shut()
        self.check_idle()
        try:
            await asyncio.wait_for(self._idle.wait(), grace_s)
        except TimeoutError:
            pass

    def close(self) -> None:
        """Close all connections, once what was written to them is sent."""
        for connection in list(self.connections):
            connection.close()

    def check_idle(self) -> None:
        if self.stopping and self.active == 0:
            self._idle.set()

    def date_header(self) -> bytes:
        now = int(time.time())
        if self._date[0] != now:
            self._date = (now, b"date: " + formatdate(now, usegmt=True).encode() + b"\r\n")
        return self._date[1]

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(5)
            now = time.monotonic()
            for connection in list(self.connections):
                connection.sweep(now)
