"""Bytes of one connection to requests: no socket, no clock, only calls to a sink.

Clients repeat the heads of their requests. A head that was parsed and accepted once is remembered by its bytes, and a
request that begins with it bypasses llhttp: its body is as long as that head says.
"""

from __future__ import annotations

import logging
from typing import Any

import httptools

from workers.net.limits import COPY_BYTES, DIRECT_READ_BYTES, SLICE_BYTES, Http1Limits

from .messages import CLOSE, KEEP_ALIVE, Buffer, RequestHead

logger = logging.getLogger(__name__)

#: headers that determine the length of a body
_FRAMING = (b"content-length", b"transfer-encoding")


#: bytes around chunks for each byte of their data, on top of :attr:`Http1Limits.head_bytes`: chunks of one byte take 5
CHUNK_OVERHEAD = 16


class KnownHeads(dict[bytes, RequestHead]):
    """Heads by their bytes. Clear it when other heads become acceptable."""

    def __init__(self, limits: Http1Limits):
        super().__init__()
        self._limits = limits

    def remember(self, raw: bytes, head: RequestHead) -> None:
        if raw.count(b"\n") != raw.count(b"\r\n"):
            # llhttp is lenient with line ends, and might end the head elsewhere.
            return
        if len(self) >= self._limits.known_heads:
            self.clear()
        self[raw] = head


class RequestParser:
    """Parses the requests of one connection.

    Args:
        sink: gets the results in order (:class:`~.connection.HttpConnection`); each call may stop the parser.

    Attributes:
        head: of the request that is being received; None between requests.
        head_complete: only its body is missing.
        stopped: bytes are ignored from now on.
        rest: bytes that are not parsed yet, since the sink was full; to be fed again.
    """

    def __init__(self, sink: Any, limits: Http1Limits, known: KnownHeads):
        self._sink = sink
        self._limits = limits
        self._known = known
        self._llhttp = httptools.HttpRequestParser(self)
        self.head: RequestHead | None = None
        self.head_complete = False
        self.stopped = False
        self.rest = b""
        #: bytes of the head that is being parsed, if they came in one piece
        self._raw: bytes | None = None
        self._head_bytes = self._fields = 0
        #: bytes of chunks and what is around them
        self._chunked_bytes = 0
        self._body = bytearray()
        #: memory for a body behind a known head, and how much of it is there
        self._place: memoryview | None = None
        self._filled = 0
        #: llhttp skips the body of a request that offers an upgrade, and gets a head of our own to parse that body
        self._upgrade_offered = self._resuming = False
        #: bytes since llhttp last reported anything but a header, and whether it did in this call
        self._unreported = 0
        self._reported = False

    def feed(self, data: bytes) -> None:
        if self.stopped:
            return
        if self.head is None:
            end = data.find(b"\r\n\r\n") + 4
            head = self._known.get(data[:end]) if end > 4 else None
            if head is not None:
                size = len(data) - end
                if size == head.length:
                    self._sink.on_request(head, data[end:] if size <= COPY_BYTES else memoryview(data)[end:])
                    return
                if size < head.length:
                    self._begin_body(head, data[end:])
                    return
            elif 4 < end <= self._limits.known_head_bytes:
                self._raw = data[:end]
        elif self._place is not None:
            missing = len(self._place) - self._filled
            self._fill(data[:missing])
            if len(data) > missing:
                self.feed(data[missing:])
            return
        self._parse(data)

    def stop(self) -> None:
        self.stopped = True
        self.head = self._place = self._raw = None
        self.rest = b""
        self._body = bytearray()

    def close(self) -> None:
        """Stop, and drop the references that form cycles."""
        self.stop()
        self._llhttp = self._sink = None

    # --- bodies behind known heads ---

    @property
    def space(self) -> memoryview:
        return self._place[self._filled :]

    def filled(self, size: int) -> None:
        """``size`` bytes of :attr:`space` were written."""
        self._filled += size
        self._sink.on_body(size)
        if not self.stopped and self._filled == len(self._place):
            body, self._place = self._place, None
            self._complete(body)

    def _begin_body(self, head: RequestHead, begun: bytes) -> None:
        self.head, self.head_complete = head, True
        # Not initialised, so that a length that a client only claims takes no memory.
        # Imported here: servers without bodies stay small.
        import numpy as np

        self._place, self._filled = memoryview(np.empty(head.length, np.uint8)), 0
        self._sink.on_begin()
        self._fill(begun)
        if not self.stopped and head.length - len(begun) > DIRECT_READ_BYTES:
            self._sink.on_large_body()

    def _fill(self, data: bytes) -> None:
        self._place[self._filled : self._filled + len(data)] = data
        self.filled(len(data))

    def _complete(self, body: Buffer) -> None:
        head, self.head = self.head, None
        self._sink.on_request(head, body)

    # --- everything else: llhttp and its callbacks ---

    def _parse(self, data: bytes) -> None:
        size = len(data)
        if size <= SLICE_BYTES:
            self._parse_slice(data)
            return
        for offset in range(0, size, SLICE_BYTES):
            if offset and self._sink.full():
                self.rest = data[offset:]
                return
            self._parse_slice(data[offset : offset + SLICE_BYTES])
            if self.stopped:
                return

    def _parse_slice(self, data: bytes) -> None:
        self._reported = False
        head = self.head if self.head_complete else None
        try:
            rest: bytes | None = data
            while rest is not None:
                rest = self._feed_llhttp(rest)
        except httptools.HttpParserCallbackError as error:
            logger.error("http_connection_failed", exc_info=error)
            self._fail(500, "internal error")
        except httptools.HttpParserError as error:
            text = str(error)
            if "PRI" in text:
                text = "HTTP/2 is not spoken at this port; send HTTP/1.1 (gRPC has a port of its own)"
            version = "invalid http version" in text.lower()
            self._fail(505 if version else 400, f"not a valid HTTP request: {text}")
        self._raw = None
        # llhttp buffers a header until it is complete, and accepts chunk extensions of any length.
        self._unreported = 0 if self._reported else self._unreported + len(data)
        if self._unreported > self._limits.head_bytes:
            part = "chunk extensions and trailers" if self.head_complete else "request line and headers"
            self._fail(431, f"{part}: at most {self._limits.head_bytes} bytes")
        elif head is not None and head is self.head and head.length is None:
            self._chunked_bytes += len(data)
            if self._chunked_bytes > self._limits.head_bytes + CHUNK_OVERHEAD * len(self._body):
                self._fail(400, f"chunks: at most {CHUNK_OVERHEAD} bytes for each byte of their data")

    def _feed_llhttp(self, data: bytes) -> bytes | None:
        """Parse up to the end of a head that offers an upgrade.

        An offer may be ignored (RFC 9110, section 7.8), and Java's client makes one with each request. A plain head
        with the same framing makes llhttp parse the body that it would skip.

        Returns:
            The bytes behind such a head; None without one.
        """
        try:
            self._llhttp.feed_data(data)
            return None
        except httptools.HttpParserUpgrade as offer:
            rest = data[offer.args[0] :]
        self._upgrade_offered = False
        head = self.head
        if self.stopped or head is None:
            return None
        lines = [b"%s: %s\r\n" % (name, head.headers[name]) for name in _FRAMING if name in head.headers]
        self._resuming = True
        self._llhttp.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(lines) + head.persistence + b"\r\n")
        return rest

    def on_message_begin(self) -> None:
        if self._resuming or self.stopped:
            return
        self.head, self.head_complete = RequestHead(), False
        self._body = bytearray()
        self._head_bytes = self._fields = self._chunked_bytes = 0
        self._reported = True
        self._sink.on_begin()

    def on_url(self, url: bytes) -> None:
        if not self._resuming and not self.stopped:
            self.head.target += url
            self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._resuming or self.stopped:
            return
        self._count_head(len(name) + len(value) + 4)
        self._fields += 1
        if self._fields > self._limits.fields:
            self._fail(431, f"headers: at most {self._limits.fields} fields")
        if self.head_complete or self.stopped:
            # Trailers are ignored (RFC 9110, section 6.5.1).
            return
        name = name.lower()
        headers = self.head.headers
        known = headers.get(name)
        if known is not None and name == b"host":
            self._fail(400, "host: at most one header of this name")
        headers[name] = value if known is None else known + b", " + value

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.head_bytes:
            self._fail(431, f"request line and headers: at most {self._limits.head_bytes} bytes")

    def on_headers_complete(self) -> None:
        if self._resuming:
            self._resuming = False
            return
        raw, self._raw = self._raw, None
        self.head_complete = self._reported = True
        self._upgrade_offered = self._llhttp.should_upgrade()
        if self.stopped or not self._finish_head(self.head):
            return
        head = self.head
        self._sink.on_head(head)
        most = head.body_bytes
        if most is not None and head.length is not None and head.length > most:
            self._too_large(most)
        if (
            raw is not None
            and head.remembered
            and not self.stopped
            and head.length is not None
            and head.persistence != CLOSE
            and b"expect" not in head.headers
        ):
            self._known.remember(raw, head)

    def _finish_head(self, head: RequestHead) -> bool:
        """Complete a head from all its headers; False: it is not acceptable."""
        version = self._llhttp.get_http_version()
        if version not in ("1.0", "1.1"):
            return self._fail(505, f"HTTP version {version}: not supported; supported are 1.0 and 1.1")
        if version == "1.1" and b"host" not in head.headers:
            # RFC 9112, section 3.2
            return self._fail(400, "host: missing, and HTTP/1.1 requires it")
        head.method = self._llhttp.get_method()
        if not self._llhttp.should_keep_alive():
            head.persistence = CLOSE
        elif version == "1.0":
            head.persistence = KEEP_ALIVE
        head.target, _, head.query = _path(head.target).partition(b"?")
        coding = head.headers.get(b"transfer-encoding")
        if coding is not None:
            if coding.lower() != b"chunked":
                return self._fail(501, "transfer-encoding: only 'chunked' is supported")
            if version == "1.0":
                # A proxy that forwarded it may not have understood the chunks (RFC 9112, section 6.1).
                head.persistence = CLOSE
            head.length = None
            return True
        length = head.headers.get(b"content-length", b"0").lstrip(b"0") or b"0"
        most = self._limits.body_bytes
        if not length.isdigit() or len(length) > len(b"%d" % most):
            return self._too_large(most)
        head.length = int(length)
        return head.length <= most or self._too_large(most)

    def on_body(self, body: bytes) -> None:
        self._reported = True
        if self.stopped:
            return
        most = self.head.body_bytes
        if most is None:
            most = self._limits.body_bytes
        if len(self._body) + len(body) > most:
            self._too_large(most)
            return
        self._sink.on_body(len(body))
        if not self.stopped:
            self._body += body

    def on_message_complete(self) -> None:
        self._reported = True
        if self.stopped or self._upgrade_offered:
            # The body of an upgrade request follows.
            return
        body, self._body = self._body, bytearray()
        self._complete(memoryview(body))

    def _too_large(self, most: int) -> bool:
        return self._fail(413, f"body: at most {most} bytes")

    def _fail(self, status: int, message: str) -> bool:
        """Stop with an error, unless there was one before. Returns False."""
        if not self.stopped:
            self.stop()
            self._sink.on_error(status, message)
        return False


def _path(target: bytes) -> bytes:
    """Path and query of a target, which may be a whole address (RFC 9112, 3.2.2)."""
    if target.startswith(b"/"):
        return target
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        return target
    _, separator, path = rest.partition(b"/")
    return separator + path if separator else b"/"
