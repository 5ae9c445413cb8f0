"""Requests as they were parsed, and their responses as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from workers.net.limits import JOIN_BYTES

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[bytes, bytes]]
#: status, headers without ``content-length``, pieces of the body
Response = tuple[int, Headers, Sequence[Buffer]]

#: header lines; a response to HTTP/1.0 must say that the connection stays open (RFC 9112, section 9.3)
CLOSE, KEEP_ALIVE = b"connection: close\r\n", b"connection: keep-alive\r\n"
STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class RequestHead(msgspec.Struct, eq=False):
    """A request's method, target and headers.

    Attributes:
        target: path, still percent-encoded; ``query``: behind its first question mark.
        headers: by lower-case name; values of a repeated header are joined by a comma.
        length: bytes of the body; None: it comes in chunks.
        persistence: :data:`CLOSE` or :data:`KEEP_ALIVE` where the response needs that header line, else empty.
        state: the application's own, set by :meth:`HttpHandler.preflight`.
        client: identifies the client (its API key), set likewise; empty: a stranger.
        body_bytes: the most that the body may have, set likewise; None: the server's limit.
        remembered: accept equal heads without asking again, set likewise; not worth its memory for strangers.
    """

    method: bytes = b""
    target: bytes = b""
    query: bytes = b""
    headers: dict[bytes, bytes] = {}
    length: int | None = 0
    persistence: bytes = b""
    state: Any = None
    client: str = ""
    body_bytes: int | None = None
    remembered: bool = True


class Exchange(msgspec.Struct, eq=False):
    """One request and the means to answer it.

    Attributes:
        connection: that it came on (:class:`~.connection.HttpConnection`).
        head: may be shared with other requests.
        read_at: ``time.monotonic()`` when the last byte arrived.
        done: answered, or the client is gone.
        waiter: the application's own, for :meth:`HttpHandler.disconnected`.
    """

    connection: Any
    head: RequestHead
    body: Buffer
    read_at: float
    done: bool = False
    waiter: Any = None

    def respond(self, status: int, headers: Headers, body: Sequence[Buffer] = (), close: bool = False) -> bool:
        """Write the response; False: the client is gone, or was answered before."""
        if self.done:
            return False
        self.done, self.waiter = True, None
        return self.connection.write_response(self, status, headers, body, close)

    def succeed(self, rest: bytes) -> bool:
        """Write a response of status 200, not for HEAD requests.

        For the result see :meth:`respond`.

        Args:
            rest: everything after the date: headers with ``content-length``, an empty line, the body.
        """
        if self.done:
            return False
        self.done, self.waiter = True, None
        return self.connection.write_success(self, rest)


class HttpHandler(Protocol):
    def preflight(self, head: RequestHead) -> Response | None:
        """Accept a request by its head (None), or reject it before its body is read.

        An accepted head is accepted again without a call until :meth:`~.server.HttpServer.forget`.
        """

    def handle(self, exchange: Exchange) -> None:
        """Answer a request now or later; called once it is complete."""

    def disconnected(self, exchange: Exchange) -> None:
        """The client of an unanswered exchange is gone; called once."""

    def render_error(self, status: int, message: str) -> Response:
        """Word an error that the server found."""


def render(response: Response, date: bytes, persistence: bytes, head_only: bool) -> list[Buffer]:
    """Serialise a response, as one buffer where it is small.

    Args:
        date, persistence: whole header lines, or empty.
        head_only: leave out the body, but not its length (HEAD requests).
    """
    status, headers, body = response
    size = sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in body)
    head = bytearray(STATUS_LINES[status])
    head += date
    for name, value in headers:
        head += name + b": " + value + b"\r\n"
    head += b"content-length: %d\r\n" % size + persistence + b"\r\n"
    if head_only:
        body = ()
    if size >= JOIN_BYTES:
        return [head, *body]
    for part in body:
        head += part
    return [head]
