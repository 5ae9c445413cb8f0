"""The gRPC server around :class:`~.rpc.Rpc`: where it listens, its limits, and how it stops."""

from __future__ import annotations

import asyncio
import time
from operator import attrgetter

from workers.gateway.errors import GatewayError, Overloaded
from workers.gateway.rpc import Rpc
from workers.net.http2 import Connection, Head

from .call import TOO_MANY_READ, TOO_MANY_UNSENT, Admitted, Call

#: calls with a key that are under way at once, whatever they do: open streams, too. One connection has at most
#: :data:`.http2.connection.STREAMS` of them, about a twentieth
MAX_CALLS = 20_000
#: calls without a key that are under way at once: honest ones last no longer than a frame takes to come and go
MAX_OPEN_CALLS = 1000
MAX_CONNECTIONS = 4096
#: clients that were told that the gateway stops get this long to read it (s)
FAREWELL_S = 0.3


class RpcServer:
    """Listens for gRPC in the running event loop. Also what its calls share (:class:`~.rpc_call.Calls`) and who its
    connections belong to (:class:`~.http2.connection.Server`).

    ``message_bytes``: largest message, as it came and decompressed. ``most_bytes``: all messages that are being read,
    together, and all answers that clients do not take, together; beyond it, the connection that holds most is evicted.
    """

    def __init__(self, rpc: Rpc, message_bytes: int, most_bytes: int):
        self._rpc = rpc
        self.message_bytes = message_bytes
        self.most_bytes = most_bytes
        self.reading = self.unsent = self.streams = 0
        #: calls without a key, the oldest first
        self._open: dict[Call, None] = {}
        self.connections: set[Connection] = set()
        self.port = 0
        """the port that it listens on"""
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task | None = None
        self._idle = asyncio.Event()

    async def start(self, host: str, port: int, reuse_port: bool = False) -> None:
        """Listen; with ``reuse_port`` beside other processes that do so too.

        Raises:
            OSError: the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), host, port, backlog=1024, reuse_port=reuse_port
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweeper = asyncio.create_task(self._sweep(), name="grpc-sweep")

    async def drain(self, grace_s: float) -> None:
        """Take no more calls; let those under way finish, and answers be taken, for up to ``grace_s``."""
        if self._server is None:
            return
        self._server.close()
        self._sweeper.cancel()
        self._rpc.stop()
        for connection in list(self.connections):
            connection.stop()
        try:
            async with asyncio.timeout(grace_s):
                while self.streams or any(connection.unsent for connection in self.connections):
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """Close all connections, once what was written to them is sent, or after a moment."""
        for connection in list(self.connections):
            connection.close()
        try:
            async with asyncio.timeout(FAREWELL_S):
                while self.connections:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()

    # --- for connections ---

    def full(self) -> bool:
        """See :class:`~.http2.connection.Server`."""
        return len(self.connections) >= MAX_CONNECTIONS

    def open(self, connection: Connection, number: int, head: Head) -> Call:
        """See :class:`~.http2.connection.Server`."""
        return Call(self, connection, number, head)

    def closed(self, connection: Connection) -> None:
        """See :class:`~.http2.connection.Server`."""
        self._idle.set()

    # --- for calls ---

    def admit(self, head: Head) -> Admitted:
        """See :class:`~.rpc_call.Calls`."""
        return self._rpc.admit(head)

    def current(self, admitted: Admitted) -> bool:
        """See :class:`~.rpc_call.Calls`."""
        return self._rpc.current(admitted)

    def refused(self, error: GatewayError) -> None:
        """See :class:`~.rpc_call.Calls`."""
        self._rpc.refused(error)

    def claim(self, call: Call) -> bool:
        """See :class:`~.rpc_call.Calls`."""
        # It is one of the streams already.
        while self.streams - len(self._open) > MAX_CALLS:
            largest = max(self.connections, key=_streams)
            if _streams(largest) <= _streams(call.connection):
                return False
            next(reversed(largest.streams.values())).evict(Overloaded("too many calls are under way; try again"))
        return True

    def opened(self, call: Call) -> None:
        """See :class:`~.rpc_call.Calls`."""
        self._open[call] = None
        if len(self._open) > MAX_OPEN_CALLS:
            # Honest ones are whole at once, so the oldest is none of them.
            next(iter(self._open)).evict(Overloaded("too many calls without a key are under way; try again"))

    def closed_open(self, call: Call) -> None:
        """See :class:`~.rpc_call.Calls`."""
        del self._open[call]

    def relieve(self, call: Call, held: str) -> bool:
        """See :class:`~.rpc_call.Calls`."""
        size = attrgetter(held)
        reading = held == "reading_bytes"
        while (self.reading if reading else self.unsent) > self.most_bytes:
            largest = max(self.connections, key=size)
            if size(largest) <= size(call.connection):
                return False
            max(largest.streams.values(), key=size).evict(Overloaded(TOO_MANY_READ if reading else TOO_MANY_UNSENT))
        return True

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            for connection in list(self.connections):
                connection.sweep(now)
                for call in list(connection.streams.values()):
                    call.sweep(now)


def _streams(connection: Connection) -> int:
    return len(connection.streams)
