"""The listening socket, and the memory that all connections share."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from operator import attrgetter

from workers.net.admission import Connections, most_holding
from workers.net.limits import Http1Limits
from workers.net.server import Server
from workers.net.waiting import wait_until

from .connection import HttpConnection
from .messages import STATUS_LINES, HttpHandler
from .parser import KnownHeads

#: seconds between two looks at the time limits of all connections
SWEEP_EVERY_S = 4.5
_held, _unsent = attrgetter("held_bytes"), attrgetter("unsent_bytes")


class HttpServer(Server):
    """An HTTP/1.1 server.

    Attributes:
        active: requests that are being handled.
        buffered_bytes: of request bodies that are being read or wait, of all connections.
        unsent_bytes: of responses that clients have not read, of all connections.
        date, ok: header line of the present second, and the same behind the status line of 200.
    """

    def __init__(self, handler: HttpHandler, limits: Http1Limits):
        super().__init__(lambda: HttpConnection(self), Connections(limits.connections, limits.address_connections))
        self.handler = handler
        self.handle = handler.handle
        self.limits = limits
        self.known_heads = KnownHeads(limits)
        self.active = self.buffered_bytes = self.unsent_bytes = 0
        self.stopping = False
        self.date = self.ok = b""
        self._swept_at = 0.0
        self._update_date()

    async def drain(self, grace_s: float, linger_s: float = 0.0) -> None:
        """Accept nothing more, and wait for responses to be sent and read.

        Args:
            grace_s: seconds to wait at most for requests to be answered and responses to be read.
            linger_s: of this, how long open connections without a request are kept. Clients learn from the next
                response that theirs closes; a request that is on its way while it is closed is lost.
        """
        self.stopping, until = True, time.monotonic() + grace_s
        if not self.stop_listening():
            return
        await wait_until(lambda: not self.connections, linger_s)
        expecting = {connection for connection in self.connections if connection.expects_response}
        for connection in self.connections - expecting:
            connection.close_idle()
        if expecting:
            # Closing these without a response would be an error that their clients cannot explain.
            await asyncio.sleep(min(self.limits.last_requests_s, grace_s))
            for connection in expecting & self.connections:
                connection.close_idle()
        unread: set[HttpConnection] = set()

        def over() -> bool:
            # The system may have taken all by now: the client has read it once the connection has ended.
            unread.update(connection for connection in self.connections if connection.unsent)
            unread.intersection_update(self.connections)
            return not self.active and not unread

        await wait_until(over, until - time.monotonic())

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()

    def forget(self) -> None:
        """Ask :meth:`HttpHandler.preflight` again for heads that were accepted."""
        self.known_heads.clear()

    # --- called by connections ---

    def reserve(self, connection: HttpConnection, size: int) -> bool:
        """Count ``size`` more bytes as buffered.

        Connections are evicted until they fit (:func:`most_holding`).

        Returns:
            False: they do not fit, and were not counted.
        """
        while self.buffered_bytes + size > self.limits.buffered_bytes:
            largest = most_holding(self.connections, _held, connection, size)
            if largest is connection:
                return False
            largest.evict()
        self.buffered_bytes += size
        return True

    def abort_unread(self) -> None:
        """Abort connections with unread responses until the rest, or one, fits."""
        for connection in self.connections:
            if connection.unsent_bytes:
                # The client may have read some since they were last counted.
                connection.count_unsent()
        while self.unsent_bytes > self.limits.buffered_bytes:
            largest = most_holding(self.connections, _unsent)
            if largest.unsent_bytes == self.unsent_bytes:
                return
            largest.abort()

    # --- time ---

    def _update_date(self) -> None:
        self.date = b"date: " + formatdate(time.time(), usegmt=True).encode() + b"\r\n"
        self.ok = STATUS_LINES[200] + self.date

    def sweep(self, now: float) -> None:
        self._update_date()
        if now - self._swept_at >= SWEEP_EVERY_S:
            self._swept_at = now
            for connection in list(self.connections):
                connection.sweep(now)
