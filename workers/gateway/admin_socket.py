"""A unix socket for a gateway process's metrics and for pings.

It gives the node daemon the metrics, and answers the supervisor's pings. A connection to the port that gateway
processes share could reach any of them. The daemon serves these metrics with its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from workers import log
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import Frame, Hello, Metrics, MetricsRequest
from workers.protocol.framing import FrameError
from workers.protocol.gateways import Ping, Pong, ToGateway

logger = log.get("gateway.admin_socket")


class AdminSocket:
    def __init__(self, path: Path, page: Callable[[], bytes]):
        self._path = path
        self._page = page
        self._server: asyncio.Server | None = None
        self._connections: set[FrameConnection] = set()

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: FrameConnection(ToGateway, self._received, self._closed, self._connections.add), str(self._path)
        )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self._connections):
                connection.close()
            self._path.unlink(missing_ok=True)

    def _received(self, connection: FrameConnection, message: Frame, body: memoryview) -> None:
        if isinstance(message, Hello):
            connection.peer = message
        elif connection.peer is None:
            raise FrameError("the first frame must be Hello")
        elif isinstance(message, MetricsRequest):
            connection.send(Metrics(self._page().decode()))
        elif isinstance(message, Ping):
            connection.send(Pong())

    def _closed(self, connection: FrameConnection, error: Exception | None) -> None:
        self._connections.discard(connection)
        if error is not None:
            logger.warning("peer_lost", error=str(error) or type(error).__name__)
