"""Requests as they were read, and how they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[bytes, bytes]]

#: the last answer of a connection says so; one to HTTP/1.0 has to say that it is not the last (RFC 9112, section 9.3)
CLOSE, KEEP_ALIVE = b"connection: close\r\n", b"connection: keep-alive\r\n"


class Head:
    """A request's head.

    ``headers``: lower-case names; a repeated header's values are joined by a comma. ``length``: of the body that
    belongs to it; None: it comes in chunks. ``afterwards``: the header line by which its answer tells what becomes of
    the connection (:data:`CLOSE`, :data:`KEEP_ALIVE`), empty where it stays open without a word. ``state``: what
    :attr:`~.shared.Shared.preflight` left for the handler.
    """

    __slots__ = ("afterwards", "headers", "length", "method", "query", "state", "target")

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.query = b""
        self.headers: dict[bytes, bytes] = {}
        self.afterwards = b""
        self.length: int | None = 0
        self.state: Any = None


class Exchange:
    """One request and the way to answer it.

    ``head`` may be shared with other requests. ``read_at``: ``time.monotonic()`` when the last byte was there.
    ``waiter``: the handler's own, for :attr:`~.shared.Shared.disconnected`.
    """

    __slots__ = ("_connection", "afterwards", "body", "done", "head", "read_at", "waiter")

    def __init__(self, connection: Answering, head: Head, body: Buffer, read_at: float):
        self._connection = connection
        self.head = head
        self.body = body
        self.read_at = read_at
        self.afterwards = head.afterwards
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


class Answering(Protocol):
    """What an exchange came by and is answered by."""

    def write_response(
        self, exchange: Exchange, status: int, headers: Headers, body: Sequence[Buffer], close: bool
    ) -> bool:
        """See :meth:`Exchange.respond`."""

    def write_success(self, exchange: Exchange, rest: bytes) -> bool:
        """See :meth:`Exchange.succeed`."""
