"""What the connections of a server share: its handlers, its limits, what is counted together, and known heads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from typing import Protocol

from .messages import Buffer, Exchange, Head, Headers
from .rendering import STATUS_LINES

#: heads that are remembered, and the longest one that is
HEADS, HEAD_BYTES = 1024, 4096


class Holder(Protocol):
    """A connection, as far as its use of what is shared goes."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the shared buffer that it holds."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that its client did not take, when that was last counted."""

    def count_unsent(self) -> None:
        """Count them again."""

    def evict(self) -> None:
        """Refuse the requests that hold them."""

    def abort(self) -> None:
        """Close at once."""


def _held(connection: Holder) -> int:
    return connection.held_bytes


def _unsent(connection: Holder) -> int:
    return connection.unsent_bytes


class Shared:
    """What connections share.

    Args:
        handle: called with each fully read :class:`Exchange`.
        preflight: called with a head that is complete, its body not yet read; returns None to go on, or the response
            that refuses it: (status, headers, body). What it admits once it admits until :meth:`forget` is called.
        disconnected: called once with an exchange whose client went away before the answer.
        render_error: how this server words its own errors: (status, message) -> (status, headers, body).
        max_body_bytes: largest request body. max_buffered_bytes: all bodies that are being read or wait for others of
            their connections, together; and so for all answers that clients do not take, unless there is only one.
            Beyond it the connection that holds most is evicted.
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
        self.connections: set[Holder] = set()
        self.buffered_bytes = self.unsent_bytes = 0
        self.active = 0
        self.stopping = False
        #: headers of the present second: the date, and behind a status line of 200
        self.date = self.ok = b""
        self.tell_time()
        self.idle = asyncio.Event()
        #: heads that were admitted, by their bytes
        self.heads: dict[bytes, Head] = {}

    def make_room(self, held: int, size: int) -> bool:
        """Evict connections until ``size`` more bytes fit; False: none holds more than a connection that holds ``held``
        would with them."""
        while self.buffered_bytes + size > self.max_buffered_bytes:
            largest = max(self.connections, key=_held)
            if largest.held_bytes <= held + size:
                return False
            largest.evict()
        return True

    def abort_unread(self) -> None:
        """Abort the connections with most unread answers until the others' fit. One may exceed the limit alone."""
        for connection in self.connections:
            if connection.unsent_bytes:
                # Some was taken since it was last counted.
                connection.count_unsent()
        while self.unsent_bytes > self.max_buffered_bytes:
            largest = max(self.connections, key=_unsent)
            if largest.unsent_bytes == self.unsent_bytes:
                return
            largest.abort()

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

    def check_idle(self) -> None:
        """To be called when a request was answered or a connection has ended: a server that stops waits for the last
        one."""
        if self.stopping and self.active == 0:
            self.idle.set()

    def tell_time(self) -> None:
        """To be called every second."""
        self.date = b"date: " + formatdate(time.time(), usegmt=True).encode() + b"\r\n"
        self.ok = STATUS_LINES[200] + self.date
