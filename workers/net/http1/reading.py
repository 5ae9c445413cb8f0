"""Bytes of a connection to requests: heads that are known, heads and bodies that are parsed, and their limits."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

import httptools

from workers import log

from .bodies import BodyReader
from .messages import CLOSE, KEEP_ALIVE, Buffer, Exchange, Head, Headers
from .shared import HEAD_BYTES, Shared

logger = log.get("gateway.http")

#: request line and headers together; ample for any client, small enough to hold for each connection
MAX_HEAD_BYTES = 64 * 1024
#: a body of which more than this is still to come is read straight into place
IN_PLACE = 64 * 1024
#: of so many bytes a copy costs less than a view
SMALL = 4096
#: header lines of a body's length, which a request that offers an upgrade is read on by
FRAMING = (b"content-length", b"transfer-encoding")
TOO_MANY = "too many request bodies are being read at once; try again"


class RequestReader:
    """Reads what one client sends. What becomes of requests, and how one is refused, is for who inherits from it to
    say: :meth:`_take`, :meth:`_start`, :meth:`_refuse_with` and :meth:`close`."""

    def __init__(self, server: Shared):
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
        #: bytes of the body that had come by :attr:`_since`
        self._since_bytes = 0
        #: the head offers another protocol, and the parser leaves out the body behind it
        self._upgrade_offered = False
        #: the parser is given a head of our own for that body
        self._resuming = False
        #: bytes that the parser took since it last told of anything but a header, and whether it just did
        self._untold = 0
        self._told = False
        #: of a body behind a head that is known: what has come of it, and how many bytes are missing
        self._pieces: list[bytes] | None = None
        self._missing = 0
        #: the bytes of the head that the parser is at, if they came in one piece
        self._raw: bytes | None = None
        #: no request of what is being parsed has begun yet
        self._first = True
        #: the request that the server works on, which the next one waits for
        self._active: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        #: of what is being read, nothing is wanted any more
        self._refused = False
        #: answered for the last time: what still comes is thrown away
        self._lingering = False
        self._closing = False
        #: a request was refused behind others that are not answered yet: nothing more is read
        self._no_more = False
        self._write_paused = False
        now: float = time.monotonic()
        self._made = now
        self.touched = now

    # --- for who inherits ---

    def _take(self, exchange: Exchange) -> None:
        """A request is fully read, and others may be before it."""
        raise NotImplementedError

    def _start(self, exchange: Exchange) -> None:
        """It has begun, and is to be worked on now."""
        raise NotImplementedError

    def _refuse_with(self, status: int, headers: Headers, body: Sequence[Buffer]) -> None:
        """What is being read is refused, with this answer."""
        raise NotImplementedError

    def close(self) -> None:
        """Close once what was written is sent."""
        raise NotImplementedError

    # --- bytes ---

    def data_received(self, data: bytes) -> None:
        now = self.touched = time.monotonic()
        if self._pieces is not None:
            self._gather(data)
            return
        if self._reading is None and self._active is None and not (self._closing or self._lingering or self._no_more):
            end = data.find(b"\r\n\r\n") + 4
            head = self._server.heads.get(data[:end]) if end > 4 else None
            if head is not None and not self._write_paused:
                size = len(data) - end
                if size == head.length:
                    body = data[end:] if size <= SMALL else memoryview(data)[end:]
                    self._active = exchange = Exchange(self, head, body, now)
                    self._server.active += 1
                    self._start(exchange)
                    return
                if head.length > size and self._reserve(size):
                    self._reading = head
                    self._head_read, self._since, self._since_bytes = True, now, 0
                    if head.length - size > IN_PLACE:
                        self._read_by(BodyReader(self, head.length, data[end:]))
                    else:
                        self._pieces, self._missing = [data[end:]], head.length - size
                    return
            elif 4 < end <= HEAD_BYTES:
                self._raw = data[:end]
        if self._closing or self._lingering or self._no_more:
            return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        self._told = False
        self._first = True
        try:
            rest: bytes | None = data
            while rest is not None:
                rest = self._feed(rest)
        except httptools.HttpParserCallbackError as error:
            logger.error("http_connection_failed", exc_info=error)
            self._refuse(500, "internal error")
        except httptools.HttpParserError as error:
            version = "invalid http version" in str(error).lower()
            self._refuse(505 if version else 400, f"not a valid HTTP request: {error}")
        except Exception as error:
            logger.error("http_connection_failed", exc_info=error)
            self._refuse(500, "internal error")
        self._raw = None
        self._first = True
        # The parser holds a header until it is complete, and lets chunk extensions pass without end.
        self._untold = 0 if self._told else self._untold + len(data)
        if self._untold > MAX_HEAD_BYTES and not self._refused:
            what = "chunk extensions and trailers" if self._head_read else "request line and headers"
            self._refuse(431, f"{what}: at most {MAX_HEAD_BYTES} bytes")
        if self._waiting and self._transport is not None:
            # A pipelining client is read no faster than it is answered.
            self._transport.pause_reading()

    def _feed(self, data: bytes) -> bytes | None:
        """Parse up to the end of a head that offers an upgrade; the bytes behind it, None without such a head.

        An offer may be ignored (RFC 9110, section 7.8), and Java's client makes one with each request. The parser skips
        the body of such a request, so a plain head with the same framing makes it go on with that body.
        """
        try:
            self._parser.feed_data(data)
            return None
        except httptools.HttpParserUpgrade as offer:
            rest = data[offer.args[0] :]
        self._upgrade_offered = False
        head = self._reading
        if self._refused or head is None:
            return None
        lines = [b"%s: %s\r\n" % (name, head.headers[name]) for name in FRAMING if name in head.headers]
        self._resuming = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(lines) + head.afterwards + b"\r\n")
        return rest

    # --- bodies behind heads that are known ---

    @property
    def held_bytes(self) -> int:
        """Bytes of the shared buffer that this connection holds."""
        return self._reading_bytes

    def _reserve(self, size: int) -> bool:
        """Count bytes of a body that is being read; False: they do not fit, and no connection holds more."""
        server = self._server
        if server.buffered_bytes + size > server.max_buffered_bytes and not server.make_room(self.held_bytes, size):
            return False
        server.buffered_bytes += size
        self._reading_bytes += size
        return True

    def _let_go(self) -> None:
        """Nothing is wanted of a body that is being read."""
        self._server.buffered_bytes -= self._reading_bytes
        self._reading_bytes = 0
        self._body, self._pieces = bytearray(), None

    def _gather(self, data: bytes) -> None:
        """More of a body of which little is missing."""
        if self._closing or self._lingering or self._no_more:
            self._pieces = None
            return
        rest, data = data[self._missing :], data[: self._missing]
        if not self._reserve(len(data)):
            self._refuse(503, TOO_MANY, retry=True)
            return
        self._pieces.append(data)
        self._missing -= len(data)
        if self._missing:
            return
        body, self._pieces = b"".join(self._pieces), None
        self._body_read(body)
        if rest:
            self.data_received(rest)
        elif self._waiting and self._transport is not None:
            self._transport.pause_reading()

    def _body_read(self, body: Buffer) -> None:
        self._server.buffered_bytes -= self._reading_bytes
        self._reading_bytes = 0
        head, self._reading = self._reading, None
        self._take(Exchange(self, head, body, self.touched))

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
            self._refuse(503, TOO_MANY, retry=True)
        elif whole is not None:
            self._read_by(self)
            self._body_read(whole)

    # --- parser callbacks ---

    def on_message_begin(self) -> None:
        if self._resuming:
            return
        self._reading = Head()
        self._body = bytearray()
        self._head_bytes = 0
        self._head_read, self._since = False, self.touched
        self._told = True
        # What follows in the same piece as a request that ends the connection is not looked at.
        self._refused = self._lingering or self._closing or self._no_more

    def on_url(self, url: bytes) -> None:
        if self._resuming:
            return
        self._reading.target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._resuming:
            return
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
        if self._resuming:
            self._resuming = False
            return
        raw, self._raw = self._raw, None
        self._head_read, self._since, self._since_bytes = True, self.touched, 0
        self._told = True
        self._upgrade_offered = self._parser.should_upgrade()
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
        if not self._parser.should_keep_alive():
            head.afterwards = CLOSE
        elif version == "1.0":
            head.afterwards = KEEP_ALIVE
        head.target, _, head.query = head.target.partition(b"?")
        headers = head.headers
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers or not length.isdigit() or len(length) > 15:
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
        elif raw is not None and head.length is not None and head.afterwards != CLOSE:
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
            self._refuse(503, TOO_MANY, retry=True)
            return
        self._body += body

    def on_message_complete(self) -> None:
        self._told = True
        if self._upgrade_offered and not self._refused:
            # Its body is still to come.
            return
        self._server.buffered_bytes -= self._reading_bytes
        self._reading_bytes = 0
        head, self._reading = self._reading, None
        if self._refused:
            return
        body, self._body = self._body, bytearray()
        self._take(Exchange(self, head, memoryview(body), time.monotonic()))

    # --- refusing before the request is read ---

    def _too_large(self) -> None:
        self._refuse(413, f"body: at most {self._server.max_body_bytes} bytes")

    def _refuse(self, status: int, message: str, retry: bool = False) -> None:
        status, headers, body = self._server.render_error(status, message)
        if retry:
            headers = [*headers, (b"retry-after", b"1")]
        self._refuse_with(status, headers, body)
