"""A small HTTP/1.1 client: keep-alive connections, one request each at a time, answers by callback.

Lean on purpose, because the demo's load shares its cores with what it measures. No task and no timer a request: a
request is bytes that were encoded beforehand, and one sweep a second looks for answers that are overdue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import httptools

#: status, headers (lower-case names) and body; status None: no answer, and the body says why
Answered = Callable[[int | None, dict[bytes, bytes], bytes], None]


class _Request:
    __slots__ = ("answered", "data", "deadline")

    def __init__(self, data: bytes, answered: Answered, deadline: float):
        self.data = data
        self.answered = answered
        self.deadline = deadline


class _Connection(asyncio.Protocol):
    def __init__(self, pool: HttpPool):
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.request: _Request | None = None
        self.closed = False
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()
        self._complete = False
        self._keep_alive = False

    def send(self, request: _Request) -> None:
        self.request = request
        self._transport.write(request.data)

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # --- transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"not a valid HTTP response: {error}".encode())
            return
        if self._complete:
            self._complete = False
            request, self.request = self.request, None
            status, headers, body = self._status, self._headers, bytes(self._body)
            keep = self._keep_alive and request is not None
            if not keep:
                self.close()
            self._pool.release(self, keep)
            if request is not None:
                request.answered(status, headers, body)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.fail(f"connection lost: {error or 'closed by the server'}".encode())

    def fail(self, why: bytes) -> None:
        """End the connection, and its request (if any) without an answer."""
        request, self.request = self.request, None
        if not self.closed:
            self.close()
        self._pool.release(self, False)
        if request is None:
            return
        # Never sent again: a strict client counts what the server left unanswered, and cannot know whether it was read.
        request.answered(None, {}, why)

    # --- parser ---

    def on_message_begin(self) -> None:
        self._headers = {}
        self._body = bytearray()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._keep_alive = self._parser.should_keep_alive()  # the parser forgets it once it has returned
        self._complete = True


class HttpPool:
    """Keep-alive connections to one server, at most ``limit`` requests in flight.

    Use from one event loop; :meth:`close` when done.
    """

    def __init__(self, url: str, limit: int = 256, timeout_s: float = 5.0):
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"url: must be http://HOST[:PORT], not {url!r}")
        self.host, self.port = parts.hostname, parts.port or 80
        self.authority = parts.netloc
        self._limit = limit
        self._timeout_s = timeout_s
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._connecting: dict[asyncio.Task, _Request] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def in_flight(self) -> int:
        return len(self._busy) + len(self._connecting)

    def request_bytes(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
        """A request as it goes over the wire; may be sent any number of times.

        Raises:
            ValueError: a header's value contains a line break.
        """
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.authority}", f"Content-Length: {len(body)}"]
        for name, value in headers.items():
            if "\r" in value or "\n" in value:
                raise ValueError(f"{name}: must not contain a line break")
            lines.append(f"{name}: {value}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body

    def send(self, data: bytes, answered: Answered) -> bool:
        """Send a request now; ``answered`` is called exactly once, unless the pool is closed first.

        Returns:
            False: too many are in flight; nothing was sent and ``answered`` is never called.
        """
        if self._closed or self.in_flight >= self._limit:
            return False
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(1.0, self._sweep)
        self._submit(_Request(data, answered, time.monotonic() + self._timeout_s))
        return True

    def _submit(self, request: _Request) -> None:
        """Put a request on an idle connection, or on a new one."""
        if self._closed:
            return
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                self._busy.add(connection)
                connection.send(request)
                return
        task = asyncio.get_running_loop().create_task(self._connect(request))
        self._connecting[task] = request
        task.add_done_callback(self._connecting.pop)

    async def _connect(self, request: _Request) -> None:
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + self._timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self), self.host, self.port
                )
        except (OSError, TimeoutError) as error:
            request.answered(None, {}, f"no connection: {error!r}".encode())
            return
        self._busy.add(connection)
        connection.send(request)

    def release(self, connection: _Connection, keep: bool) -> None:
        """Called by a connection that has its answer or is lost."""
        self._busy.discard(connection)
        if keep and not self._closed:
            self._idle.append(connection)
        elif connection in self._idle:
            self._idle.remove(connection)

    def _sweep(self) -> None:
        now = time.monotonic()
        for connection in [c for c in self._busy if c.request is not None and c.request.deadline < now]:
            connection.fail(f"no answer within {self._timeout_s:g} s".encode())
        self._sweeper = asyncio.get_running_loop().call_later(1.0, self._sweep)

    async def get(self, path: str) -> int | None:
        """The status of a GET, or None when there was no answer."""
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        def answered(status: int | None, _headers: dict[bytes, bytes], _body: bytes) -> None:
            if not future.done():
                future.set_result(status)

        if not self.send(self.request_bytes("GET", path, {}), answered):
            return None
        return await future

    def close(self) -> None:
        """Drop everything at once; requests in flight are never answered."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in list(self._connecting):
            task.cancel()
        for connection in [*self._busy, *self._idle]:
            connection.request = None
            connection.close()
        self._busy.clear()
        self._idle.clear()
