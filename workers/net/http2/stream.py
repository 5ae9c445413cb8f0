"""One request over HTTP/2 and its response, as far as windows and the socket let it (RFC 9113, sections 5 and 6.9)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from workers.protocol.tensors import Buffer

from . import frames as h2
from .heads import Head


class Carrier(Protocol):
    """The connection that a stream belongs to, as the stream sees it.

    ``window``: bytes that the client takes on it, and ``initial_window`` at first on each stream; ``frame``: those sent
    in one frame; ``paused``: the socket takes no more for now. ``blocked``: streams that have something to send and
    would be let by their own windows. ``touched``: ``time.monotonic()`` when something last came.
    """

    window: int
    initial_window: int
    frame: int
    paused: bool
    touched: float
    blocked: dict[int, Stream]

    def write(self, data: bytes) -> None:
        """Hand bytes to the socket."""

    def write_all(self, pieces: Sequence[Buffer]) -> None:
        """As :meth:`write`, of large pieces."""

    def give_room(self, stream: Stream) -> None:
        """Let a stream's client send on, unless it is to wait."""

    def finished(self, stream: Stream) -> None:
        """A stream has come to its end."""


class Stream:
    """One request and its response. To be extended: ``opened``, ``received``, ``gone`` and ``drained`` are called from
    the event loop."""

    __slots__ = (
        "begun",
        "connection",
        "done",
        "head",
        "held",
        "moved",
        "number",
        "outbox",
        "reading",
        "trailers",
        "unread",
        "window",
    )

    def __init__(self, connection: Carrier, number: int, head: Head):
        self.connection = connection
        self.number = number
        self.head = head
        #: bytes that the client takes
        self.window = connection.initial_window
        #: bytes of it that came since it was last told that there is room again, and whether it is to wait for that
        self.unread = 0
        self.held = False
        #: its client may send more
        self.reading = True
        #: ``time.monotonic()`` when something last came or went
        self.moved = connection.touched
        #: the response's head was sent
        self.begun = False
        self.done = False
        #: what the windows do not let through yet, and the block behind it
        self.outbox: deque[memoryview] | None = None
        self.trailers: bytes | None = None

    # --- for whoever extends it ---

    def opened(self) -> None:
        """The request's head is there."""

    def received(self, data: Buffer, end: bool) -> None:
        """More of its body, perhaps a view of more than that, and whether this is the end of it."""

    def gone(self) -> None:
        """The client does not want the rest any more, or went away. Called only before the stream's end."""

    def drained(self) -> None:
        """All that was written has gone to the socket, after some of it had to wait."""

    def over(self) -> None:
        """The stream has ended, however it did. Called once."""

    # --- the response ---

    def write(self, block: bytes, pieces: Sequence[Buffer], size: int, trailers: bytes | None = None) -> bool:
        """Send data of ``size`` bytes, behind the head that ``block`` says unless it was sent; with ``trailers``, a
        block, it is the last. False: nobody is there any more."""
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
            and size <= connection.frame
            and not connection.paused
        ):
            self.window -= size
            connection.window -= size
            out.append(h2.head(size, h2.DATA, 0, number))
            out += pieces
            if trailers is not None:
                self._ending(out, trailers)
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
        """Go on where the connection lets something through, if that is what is waited for."""
        if self.outbox and self.window > 0:
            self.connection.blocked[self.number] = self

    def end(self, block: bytes) -> bool:
        """End the response with a block behind what was written; without a response so far it is all of it."""
        if self.done:
            return False
        if self.outbox is not None:
            self.trailers = block
            return True
        out: list[Buffer] = []
        self._ending(out, block)
        self.connection.write(b"".join(out))
        self.connection.finished(self)
        return True

    def reset(self, code: int) -> None:
        """End the stream without a response."""
        if not self.done:
            self.reading = False
            self.connection.write(h2.rst_stream(self.number, code))
            self.connection.finished(self)

    def proceed(self) -> None:
        """Let the client send on after :attr:`held` was set."""
        self.held = False
        # It could not send before.
        self.moved = time.monotonic()
        if not self.done:
            self.connection.give_room(self)

    def _ending(self, out: list[Buffer], block: bytes) -> None:
        out.append(h2.frame(h2.HEADERS, h2.END_STREAM | h2.END_HEADERS, self.number, block))
        if self.reading:
            # What else it sends is of no use (RFC 9113, section 8.1).
            out.append(h2.rst_stream(self.number, h2.NO_ERROR))

    def pump(self) -> None:
        """Send what one frame and the windows take."""
        connection, number, outbox = self.connection, self.number, self.outbox
        room = min(self.window, connection.window, connection.frame)
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
            connection.write_all((h2.head(len(piece), h2.DATA, 0, number), piece))
        if outbox:
            return
        self.outbox = None
        if self.trailers is not None:
            block, self.trailers = self.trailers, None
            self.end(block)
        else:
            self.drained()
