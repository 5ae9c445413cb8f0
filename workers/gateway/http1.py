"""HTTP/1.1 for the gateway's edge: httptools parses, one protocol object a connection, no task a request.

A handler is called once a request is fully read and answers through :meth:`Exchange.respond`, at once or later from
any callback. One request of a connection is handled at a time; pipelined ones wait their turn. Why this and not an
ASGI server: ``docs/decisions/0002-gateway-http-server.md``.

Clients say the same in the heads of all their requests. A head that was parsed and admitted once is remembered by its
bytes, and a request that begins with one goes around the parser: its body is as long as the head says.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import httptools
import numpy as np

from workers import log

logger = log.get("gateway.http")

#: request line and headers together; ample for any client, small enough to hold for each connection
MAX_HEAD_BYTES = 64 * 1024
#: seconds without progress after which an unfinished request or an idle connection is closed
READ_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 120.0
#: seconds in all for a head; seconds after which a body must have come with so many bytes/s, on average since its head
HEAD_TIMEOUT_S = 30.0
BODY_GRACE_S, BODY_BYTES_PER_S = 30.0, 4096
#: seconds in which what a refused client still sends is read and thrown away; closing at once would reset the
#: connection and the client would never see why
LINGER_S = 2.0

#: heads that are remembered, and the longest one that is
HEADS, HEAD_BYTES = 1024, 4096
#: a body of which more than this is still to come is read straight into place
_IN_PLACE = 64 * 1024

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_JOIN_BELOW = 64 * 1024

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[bytes, bytes]]


class Head:
    """A request's head. ``headers``: lower-case names; a repeated header's values are joined by a comma. ``length``: of
    the body that belongs to it; None: it comes in chunks. ``state``: what :attr:`HttpServer.preflight` left for the
    handler."""

    __slots__ = ("headers", "keep_alive", "length", "method", "query", "state", "target")

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.query = b""
        self.headers: dict[bytes, bytes] = {}
        self.keep_alive = True
        self.length: int | None = 0
        self.state: Any = None


class Exchange:
    """One request and the way to answer it.

    ``head`` may be shared with other requests. ``read_at``: ``time.monotonic()`` when the last byte was there.
    ``waiter``: the handler's own, for :attr:`HttpServer.disconnected`.
    """

    __slots__ = ("_connection", "body", "done", "head", "keep_alive", "read_at", "waiter")

    def __init__(self, connection: HttpConnection, head: Head, body: Buffer, read_at: float):
        self._connection = connection
        self.head = head
        self.body = body
        self.read_at = read_at
        self.keep_alive = head.keep_alive
        self.done = False
        self.waiter: Any = None

    def respond(self, status: int, headers: Headers, body: Sequence[Buffer] = (), close: bool = False) -> bool:
        """Hand the response to the socket. False: the client is gone, or this request was answered already."""
        if self.done:
            return False
        self.done, self.waiter = True, None
        return self._connection.write_response(self, status, headers, body, close)

    def succeed(self, rest: bytes) -> bool:
        """Respond with status 200; ``rest`` is all that follows the date: headers with ``content-length``, an empty
        line, and the body. As :meth:`respond`; to be used for requests other than HEAD."""
        if self.done:
            return False
        self.done, self.waiter = True, None
        return self._connection.write_success(self, rest)


class HttpConnection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, server: HttpServer):
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        #: the head that is being parsed, or whose body is being read
        self._reading: Head | None = None
        self._body = bytearray()
        self._reading_bytes = 0
        self._head_bytes = 0
        #: the head of what is being read is complete, and since when (``time.monotonic()``) it or its body is awaited
        self._head_read = False
        self._since = 0.0
        #: bytes that the parser took since it last told of anything but a header, and whether it just did
        self._untold = 0
        self._told = False
        #: the bytes of the head that the parser is at, if they came in one piece
        self._raw: bytes | None = None
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
        # The body goes with its count, not when the garbage collector comes by.
        self._reading = self._raw = None
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

    def data_received(self, data: bytes) -> None:
        now = self.touched = time.monotonic()
        if self._reading is None and self._active is None and not (self._closing or self._lingering or self._no_more):
            end = data.find(b"\r\n\r\n") + 4
            head = self._server.heads.get(data[:end]) if end > 4 else None
            if head is not None and not self._write_paused:
                size = len(data) - end
                if size == head.length:
                    # Of what is small a copy costs less than a view.
                    self._active = exchange = Exchange(self, head, data[end:], now)
                    self._server.active += 1
                    self._start(exchange)
                    return
                if head.length - size > _IN_PLACE and self._reserve(size):
                    self._read_in_place(head, data[end:])
                    return
            elif 4 < end <= HEAD_BYTES:
                self._raw = data[:end]
        if self._closing or self._lingering or self._no_more:
            return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        self._told = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # A server may ignore an offer to upgrade; what follows in this connection is no longer understood.
            if self._active is not None:
                self._active.keep_alive = False
            else:
                self.close()
        except httptools.HttpParserError as error:
            version = "invalid http version" in str(error).lower()
            self._refuse(505 if version else 400, f"not a valid HTTP request: {error}")
        except Exception as error:
            logger.error("http_connection_failed", exc_info=error)
            self._refuse(500, "internal error")
        self._raw = None
        # The parser holds a header until it is complete, and lets chunk extensions pass without end.
        self._untold = 0 if self._told else self._untold + len(data)
        if self._untold > MAX_HEAD_BYTES and not self._refused:
            what = "chunk extensions and trailers" if self._head_read else "request line and headers"
            self._refuse(431, f"{what}: at most {MAX_HEAD_BYTES} bytes")
        if self._waiting and self._transport is not None:
            # A pipelining client is read no faster than it is answered.
            self._transport.pause_reading()

    # --- bodies that are read into place ---

    def _reserve(self, size: int) -> bool:
        """Count a body as one that is being read, if all together are not too many then."""
        if self._server.buffered_bytes + size > self._server.max_buffered_bytes:
            return False
        self._server.buffered_bytes += size
        self._reading_bytes += size
        return True

    def _read_in_place(self, head: Head, begun: bytes) -> None:
        self._reading = head
        self._head_read, self._since = True, self.touched
        self._read_by(BodyReader(self, head.length, begun))

    def _read_by(self, protocol: asyncio.BaseProtocol) -> None:
        # Which of a protocol's ways of reading is used is settled when reading begins.
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()

    def body_grew(self, size: int, whole: memoryview | None) -> None:
        """A body that is read into place has so many more bytes; ``whole``: it is complete."""
        self.touched = time.monotonic()
        if self._closing or self._lingering:
            self._read_by(self)
        elif not self._reserve(size):
            self._read_by(self)
            self._refuse(503, "too many request bodies are being read at once; try again", retry=True)
        elif whole is not None:
            self._read_by(self)
            self._server.buffered_bytes -= self._reading_bytes
            self._reading_bytes = 0
            head, self._reading = self._reading, None
            exchange = Exchange(self, head, whole, self.touched)
            self._begin(exchange)
            self._start(exchange)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._next()

    # --- parser callbacks ---

    def on_message_begin(self) -> None:
        self._reading = Head()
        self._body = bytearray()
        self._head_bytes = 0
        self._head_read, self._since = False, self.touched
        self._told = True
        # What follows in the same piece as a request that ends the connection is not looked at.
        self._refused = self._lingering or self._closing or self._no_more

    def on_url(self, url: bytes) -> None:
        self._reading.target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_read:
            # A trailer: what it says comes too late to matter (RFC 9110, section 6.5.1).
            self._count_head(len(name) + len(value) + 4)
            return
        name = name.lower()
        headers = self._reading.headers
        known = headers.get(name)
        if known is not None and name == b"host" and not self._refused:
            self._refuse(400, "host: at most one header of this name")
        headers[name] = value if known is None else known + b", " + value
        self._count_head(len(name) + len(value) + 4)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES and not self._refused:
            self._refuse(431, f"request line and headers: at most {MAX_HEAD_BYTES} bytes")

    def on_headers_complete(self) -> None:
        raw, self._raw = self._raw, None
        self._head_read, self._since = True, self.touched
        self._told = True
        if self._refused:
            return
        head = self._reading
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._refuse(505, f"HTTP version {version}: not supported; supported are 1.0 and 1.1")
            return
        if version == "1.1" and b"host" not in head.headers:
            # RFC 9112, section 3.2
            self._refuse(400, "host: missing, and HTTP/1.1 requires it")
            return
        head.method = self._parser.get_method()
        head.keep_alive = self._parser.should_keep_alive()
        head.target, _, head.query = head.target.partition(b"?")
        headers = head.headers
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers or b"upgrade" in headers or not length.isdigit() or len(length) > 15:
            head.length = None
        else:
            head.length = int(length)
            if head.length > self._server.max_body_bytes:
                self._too_large()
                return
        refusal = self._server.preflight(head)
        if refusal is not None:
            status, headers, body = refusal
            self._refuse_with(status, headers, body)
            return
        if b"expect" in headers:
            if headers[b"expect"].lower() == b"100-continue" and self._active is None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif raw is not None and head.length is not None and head.keep_alive:
            self._server.remember(raw, head)

    def on_body(self, body: bytes) -> None:
        self._told = True
        if self._refused:
            return
        size = len(body)
        if len(self._body) + size > self._server.max_body_bytes:
            self._too_large()
            return
        if not self._reserve(size):
            self._refuse(503, "too many request bodies are being read at once; try again", retry=True)
            return
        self._body += body

    def on_message_complete(self) -> None:
        self._told = True
        self._server.buffered_bytes -= self._reading_bytes
        self._reading_bytes = 0
        head, self._reading = self._reading, None
        if self._refused:
            return
        exchange = Exchange(self, head, memoryview(self._body), time.monotonic())
        self._body = bytearray()
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

    def write_success(self, exchange: Exchange, rest: bytes) -> bool:
        """See :meth:`Exchange.succeed`."""
        server = self._server
        if self._active is not exchange:
            return False
        if not exchange.keep_alive or server.stopping:
            return self._write_last(exchange, server.ok, b"connection: close\r\n", rest)
        self._active = None
        server.active -= 1
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if len(rest) < _JOIN_BELOW:
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
        close = close or not exchange.keep_alive or self._server.stopping
        data = self._render(status, headers, body, close, head_only=exchange.head.method == b"HEAD")
        if close:
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

    def _render(
        self, status: int, headers: Headers, body: Sequence[Buffer], close: bool, head_only: bool
    ) -> list[Buffer]:
        """A response, as one buffer where it is small."""
        size = sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in body)
        head = bytearray(_STATUS_LINES[status])
        head += self._server.date
        for name, value in headers:
            head += name + b": " + value + b"\r\n"
        head += b"content-length: %d\r\n" % size
        head += b"connection: close\r\n\r\n" if close else b"\r\n"
        if head_only:
            body = ()
        if size >= _JOIN_BELOW:
            return [head, *body]
        for part in body:
            head += part
        return [head]

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
        self._transport.writelines(self._render(status, headers, body, close=True, head_only=False))
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

    def shut(self) -> None:
        """The server stops: close now where nothing is in progress, otherwise after the answer."""
        if self._active is None and not self._waiting:
            self.close()


class BodyReader(asyncio.BufferedProtocol):
    """Stands in for a connection while the rest of a large body is read into memory of its own."""

    def __init__(self, connection: HttpConnection, size: int, begun: bytes):
        self._connection = connection
        # Not filled with anything, and not touched before it is needed: a size that a client only claims does no harm.
        self._view = memoryview(np.empty(size, np.uint8))
        self._view[: len(begun)] = begun
        self._have = len(begun)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        self._have += nbytes
        self._connection.body_grew(nbytes, self._view if self._have == len(self._view) else None)

    def connection_lost(self, exc: Exception | None) -> None:
        # The transport may keep its protocol for longer than the body is of use.
        self._view = memoryview(b"")
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


class HttpServer:
    """Listens and keeps what the connections share.

    Args:
        handle: called with each fully read :class:`Exchange`.
        preflight: called with a head that is complete, its body not yet read; returns None to go on, or the response
            that refuses it: (status, headers, body). What it admits once it admits until :meth:`forget` is called.
        disconnected: called once with an exchange whose client went away before the answer.
        render_error: how this server words its own errors: (status, message) -> (status, headers, body).
        max_body_bytes: largest request body. max_buffered_bytes: all bodies that are being read, together.
    """

    def __init__(
        self,
        handle: Callable[[Exchange], None],
        preflight: Callable[[Head], tuple[int, Headers, Sequence[Buffer]] | None],
        disconnected: Callable[[Exchange], None],
        render_error: Callable[[int, str], tuple[int, Headers, Sequence[Buffer]]],
        max_body_bytes: int,
        max_buffered_bytes: int,
        max_connections: int = 4096,
    ):
        self.handle = handle
        self.preflight = preflight
        self.disconnected = disconnected
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
        #: headers of the present second: the date, and behind a status line of 200
        self.date = self.ok = b""
        self._tell_time()
        self._idle = asyncio.Event()
        self.heads: dict[bytes, Head] = {}

    def remember(self, raw: bytes, head: Head) -> None:
        """Take the head for known from now on."""
        if raw.count(b"\n") != raw.count(b"\r\n"):
            # A parser that is lenient with line ends might take it to end elsewhere.
            return
        if len(self.heads) >= HEADS:
            self.heads.clear()
        self.heads[raw] = head

    def forget(self) -> None:
        """Other heads may be admitted from now on."""
        self.heads.clear()

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

    def _tell_time(self) -> None:
        self.date = b"date: " + formatdate(time.time(), usegmt=True).encode() + b"\r\n"
        self.ok = _STATUS_LINES[200] + self.date

    async def _sweep(self) -> None:
        for second in itertools.count(1):
            await asyncio.sleep(1.0)
            self._tell_time()
            if second % 5 == 0:
                now = time.monotonic()
                for connection in list(self.connections):
                    connection.sweep(now)
