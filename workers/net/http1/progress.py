"""Progress of a request that is being read: large bodies and slow clients.

Large bodies are read straight into their final place.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from workers.net.limits import Http1Limits

from .parser import RequestParser


class BodyReceiver(Protocol):
    """The connection whose body is read."""

    def body_read(self, size: int) -> None:
        """``size`` bytes of a large body were read into place."""

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.BaseProtocol`."""

    def pause_writing(self) -> None:
        """See :class:`asyncio.BaseProtocol`."""

    def resume_writing(self) -> None:
        """See :class:`asyncio.BaseProtocol`."""


class DirectReader(asyncio.BufferedProtocol):
    """Replaces a connection as the transport's protocol while it reads a large body.

    The body is read into its final place.
    """

    def __init__(self, connection: BodyReceiver, parser: RequestParser):
        self._connection = connection
        self._parser = parser

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._parser.space

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.body_read(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


class ReadProgress:
    """Time and bytes since a head or a body is due.

    Attributes:
        since: ``time.monotonic()`` when that began, or the latest period of the body's rate.
        before_bytes: bytes of the body at that time.
    """

    __slots__ = ("_limits", "before_bytes", "since")

    def __init__(self, limits: Http1Limits):
        self._limits = limits
        self.since, self.before_bytes = 0.0, 0

    def restart(self, now: float, body_bytes: int) -> None:
        """Count from now on."""
        self.since, self.before_bytes = now, body_bytes

    def too_slow(self, now: float, body_bytes: int, in_body: bool) -> str:
        """Return the limit that the client no longer keeps to; empty: it is fast enough.

        This starts the next period of a body.
        """
        limits, elapsed_s = self._limits, now - self.since
        if not in_body:
            return f"request line and headers: at most {limits.head_s:g} s" if elapsed_s > limits.head_s else ""
        rate = limits.body_rate
        if elapsed_s <= rate.period_s:
            return ""
        arrived = body_bytes - self.before_bytes
        self.restart(now, body_bytes)
        if arrived >= rate.bytes_per_s * elapsed_s:
            return ""
        return f"body: at least {rate.bytes_per_s} bytes/s on average over {rate.period_s:g} s"
