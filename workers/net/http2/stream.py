"""A request over HTTP/2 and its response (RFC 9113, sections 5, 6.9 and 8.1)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from . import frames as h2
from .frames import Buffer
from .headers import HeaderList


class Http2Stream:
    """A request on an :class:`~.connection.Http2Connection`; to be extended.

    ``opened``, ``received``, ``gone``, ``drained`` and ``over`` are called from the event loop.

    Attributes:
        window: bytes that the client accepts on this stream.
        unread: bytes of the request since the last update of the window.
        held: the window is not updated for now.
        reading: the client may send more.
        missing: bytes of the body that its ``content-length`` still promises; None: it has none.
        moved: ``time.monotonic()`` of the latest progress in either direction.
        begun: the response headers were sent.
        done: the stream has ended.
        outbox: pieces of the response that flow control or the socket does not let through yet; None: there are none.
        trailers: the header block that follows them.
    """

    __slots__ = (
        "begun",
        "connection",
        "done",
        "headers",
        "held",
        "missing",
        "moved",
        "number",
        "outbox",
        "reading",
        "trailers",
        "unread",
        "window",
    )

    def __init__(self, connection: Any, number: int, headers: HeaderList):
        self.connection = connection
        self.number = number
        self.headers = headers
        self.window = connection.initial_window
        self.unread = 0
        self.held = False
        self.reading = True
        self.missing: int | None = None
        self.moved = connection.touched
        self.begun = False
        self.done = False
        self.outbox: deque[memoryview] | None = None
        self.trailers: bytes | None = None

    # --- for subclasses ---

    def opened(self) -> None:
        """The request's headers arrived."""

    def received(self, data: Buffer, end: bool) -> None:
        """More of the body, perhaps a view of a larger buffer; ``end``: the last."""

    def gone(self) -> None:
        """The client cancelled it or went away; after :meth:`over`, unless it had ended."""

    def drained(self) -> None:
        """Everything written was handed to the socket, after some of it had to wait."""

    def over(self) -> None:
        """The stream has ended for any reason. Called once."""

    # --- the response ---

    def write(self, block: bytes, pieces: Sequence[Buffer], size: int, trailers: bytes | None = None) -> bool:
        """Send data.

        Args:
            block: header block of the response, sent before the first data.
            size: bytes of all pieces.
            trailers: header block behind the data, which ends the response.

        Returns:
            False: the stream has ended.
        """
        if self.done:
            return False
        connection, number = self.connection, self.number
        out: list[Buffer] = []
        if not self.begun:
            self.begun = True
            out.append(h2.frame(h2.HEADERS, h2.END_HEADERS, number, block))
        if (
            self.outbox is None
            and size <= self.window
            and size <= connection.window
            and size <= connection.max_frame
            and not connection.paused
        ):
            self.window -= size
            connection.window -= size
            out.append(h2.header(size, h2.DATA, 0, number))
            out += pieces
            if trailers is not None:
                self._append_trailers(out, trailers)
            connection.write(b"".join(out))
            if trailers is not None:
                connection.finished(self)
            return True
        connection.write(b"".join(out))
        if self.outbox is None:
            self.outbox = deque()
        self.outbox += [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        self.trailers = trailers
        while self.outbox and min(self.window, connection.window) > 0 and not connection.paused:
            self.pump()
        self.wait()
        return True

    def wait(self) -> None:
        """Queue for the connection if only that holds up the response."""
        if self.outbox and self.window > 0:
            self.connection.blocked[self.number] = self

    def end(self, block: bytes) -> bool:
        """End the response with trailers, or headers alone. False: it has ended."""
        if self.done:
            return False
        if self.outbox is not None:
            self.trailers = block
            return True
        out: list[Buffer] = []
        self._append_trailers(out, block)
        self.connection.write(b"".join(out))
        self.connection.finished(self)
        return True

    def reset(self, code: int) -> None:
        if not self.done:
            self.reading = False
            self.connection.write(h2.rst_stream(self.number, code))
            self.connection.finished(self)

    def proceed(self) -> None:
        """Let the client send again after :attr:`held` was set."""
        self.held = False
        # The time during which the client could not send is not its own.
        self.moved = time.monotonic()
        if not self.done:
            self.connection.reopen_window(self)

    def _append_trailers(self, out: list[Buffer], block: bytes) -> None:
        out.append(h2.frame(h2.HEADERS, h2.END_STREAM | h2.END_HEADERS, self.number, block))
        if self.reading:
            # The rest of the request is not needed (RFC 9113, section 8.1).
            out.append(h2.rst_stream(self.number, h2.NO_ERROR))

    def pump(self) -> None:
        connection, number, outbox = self.connection, self.number, self.outbox
        room = min(self.window, connection.window, connection.max_frame)
        if outbox and room > 0:
            piece = outbox[0]
            if len(piece) > room:
                outbox[0] = piece[room:]
                piece = piece[:room]
            else:
                outbox.popleft()
            self.moved = time.monotonic()
            self.window -= len(piece)
            connection.window -= len(piece)
            connection.write_all((h2.header(len(piece), h2.DATA, 0, number), piece))
        if outbox:
            return
        self.outbox = None
        if self.trailers is not None:
            block, self.trailers = self.trailers, None
            self.end(block)
        else:
            self.drained()
