"""The listening socket for gRPC, the limits that all calls share, and shutdown."""

from __future__ import annotations

import time
from operator import attrgetter

from workers.net.admission import Connections, most_holding
from workers.net.http2 import HeaderList, Http2Connection
from workers.net.limits import GrpcLimits
from workers.net.server import Server
from workers.net.waiting import wait_until

from .call import OVERLOADED_READING, OVERLOADED_UNSENT, Call, GrpcService
from .status import overloaded


class GrpcServer(Server):
    """A gRPC server.

    Attributes:
        streams: open ones, calls in progress.
        reading, unsent: bytes of messages that are being read, and of responses that clients have not read.
    """

    def __init__(self, service: GrpcService, limits: GrpcLimits):
        http2 = limits.http2
        connections = Connections(http2.connections, http2.address_connections)
        super().__init__(lambda: Http2Connection(self, http2), connections)
        self.service = service
        self.limits = limits
        self.reading = self.unsent = self.streams = 0
        #: public calls, the oldest first
        self._public: dict[Call, None] = {}
        self.turns_until = 0.0

    async def drain(self, grace_s: float) -> None:
        """Accept no more calls, and wait for those in progress and for responses.

        Calls are accepted until their clients have read that the connection ends: then none is on its way.

        Args:
            grace_s: seconds to wait at most until calls have ended and responses were read.
        """
        if not self.stop_listening():
            return
        until = time.monotonic() + grace_s
        self.service.stop()
        for connection in list(self.connections):
            connection.announce()
        announce_s = min(grace_s, self.limits.announce_s)
        await wait_until(lambda: all(connection.stopped for connection in self.connections), announce_s)
        # Streams that began meanwhile.
        self.service.stop()
        for connection in list(self.connections):
            connection.stop()
        await wait_until(
            lambda: not self.streams and not any(connection.unsent for connection in self.connections),
            until - time.monotonic(),
        )

    async def close(self) -> None:
        """Leave connections to their clients for a moment, then close them."""
        goaway_s = self.limits.http2.goaway_s
        await wait_until(lambda: not self.connections, goaway_s)
        for connection in list(self.connections):
            connection.close()
        await wait_until(lambda: not self.connections, goaway_s)
        for connection in list(self.connections):
            connection.abort()

    def readmit(self) -> None:
        """End streaming calls that :meth:`GrpcService.admit` would no longer accept."""
        for connection in list(self.connections):
            for call in list(connection.streams.values()):
                call.readmit()

    # --- called by connections ---

    def open(self, connection: Http2Connection, number: int, headers: HeaderList) -> Call:
        return Call(self, connection, number, headers)

    # --- called by calls ---

    def claim(self, call: Call) -> bool:
        """Make room for a keyed call at the key with most; False: that is its own."""
        # The call is one of the open streams already.
        while self.streams - len(self._public) > self.limits.calls:
            largest = most_holding(self.connections, _streams, call.connection)
            if largest is call.connection:
                return False
            next(reversed(largest.streams.values())).evict(overloaded("too many calls are under way; try again"))
        return True

    def open_public(self, call: Call) -> None:
        self._public[call] = None
        if len(self._public) > self.limits.public_calls:
            # Honest calls arrive whole, so the oldest is not one of them.
            next(iter(self._public)).evict(overloaded("too many calls without a key are under way; try again"))

    def close_public(self, call: Call) -> None:
        del self._public[call]

    def relieve(self, call: Call, held: str) -> bool:
        """Evict calls of the API key that holds most, until all are within the limit.

        Args:
            held: ``reading_bytes`` or ``unsent_bytes``.

        Returns:
            False: that is this call's, and no other connection of it holds more.
        """
        size = attrgetter(held)
        reading = held == "reading_bytes"
        while (self.reading if reading else self.unsent) > self.limits.buffered_bytes:
            largest = most_holding(self.connections, size, call.connection)
            if largest is call.connection:
                return False
            error = overloaded(OVERLOADED_READING if reading else OVERLOADED_UNSENT)
            max(largest.streams.values(), key=size).evict(error)
        return True

    def sweep(self, now: float) -> None:
        for connection in list(self.connections):
            connection.sweep(now)
            for call in list(connection.streams.values()):
                call.sweep(now)


def _streams(connection: Http2Connection) -> int:
    return len(connection.streams)
