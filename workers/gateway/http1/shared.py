"""What the connections of a server share: its handlers, its limits, what is counted together, and known heads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate

from .messages import Buffer, Exchange, Head, Headers
from .rendering import STATUS_LINES

#: heads that are remembered, and the longest one that is
HEADS, HEAD_BYTES = 1024, 4096


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
        self.connections: set[asyncio.BaseProtocol] = set()
        self.buffered_bytes = self.unsent_bytes = 0
        self.active = 0
        self.stopping = False
        #: headers of the present second: the date, and behind a status line of 200
        self.date = self.ok = b""
        self.tell_time()
        self.idle = asyncio.Event()
        #: heads that were admitted, by their bytes
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

    def check_idle(self) -> None:
        """To be called when a request was answered or a connection has ended: a server that stops waits for the last
        one."""
        if self.stopping and self.active == 0:
            self.idle.set()

    def tell_time(self) -> None:
        """To be called every second."""
        self.date = b"date: " + formatdate(time.time(), usegmt=True).encode() + b"\r\n"
        self.ok = STATUS_LINES[200] + self.date
