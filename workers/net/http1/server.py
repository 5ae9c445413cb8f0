"""Listens, and looks after its connections every few seconds."""

from __future__ import annotations

import asyncio
import itertools
import time

from .connection import HttpConnection
from .shared import Shared

#: a server that stops waits so many seconds for requests that are on their way
LAST_CALL_S = 0.2


class HttpServer(Shared):
    """Listens; for the arguments see :class:`~.shared.Shared`."""

    connections: set[HttpConnection]
    _server: asyncio.Server | None = None
    _sweeper: asyncio.Task | None = None

    async def start(self, host: str, port: int, reuse_port: bool = False) -> None:
        """Listen; with ``reuse_port`` beside other processes that do so too.

        Raises:
            OSError: the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(self), host, port, backlog=1024, reuse_port=reuse_port
        )
        self._sweeper = asyncio.create_task(self._sweep())

    @property
    def port(self) -> int:
        return self._server.sockets[0].getsockname()[1]

    async def drain(self, grace_s: float) -> None:
        """Accept nothing more; let requests in progress finish, and answers be taken, for up to ``grace_s``."""
        self.stopping = True
        self._server.close()
        self._sweeper.cancel()
        owed = {connection for connection in self.connections if connection.owed}
        for connection in self.connections - owed:
            connection.shut()
        if owed:
            # Closed without an answer, they would be an error to their clients, who could not know.
            await asyncio.sleep(min(LAST_CALL_S, grace_s))
            for connection in owed & self.connections:
                connection.shut()
        try:
            async with asyncio.timeout(grace_s):
                # What was answered is to reach its client, too.
                while self.active or any(connection.unsent for connection in self.connections):
                    self.idle.clear()
                    await self.idle.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        """Close all connections, once what was written to them is sent."""
        for connection in list(self.connections):
            connection.close()

    async def _sweep(self) -> None:
        for second in itertools.count(1):
            await asyncio.sleep(1.0)
            self.tell_time()
            if second % 5 == 0:
                now = time.monotonic()
                for connection in list(self.connections):
                    connection.sweep(now)
