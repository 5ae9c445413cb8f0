"""The listening socket that each protocol's server extends."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from .admission import Connections
from .limits import BACKLOG
from .tls import TlsAcceptor


class Server:
    """Listens in the running event loop.

    Attributes:
        connections: the open ones, within limits.
        port: that it listens on.
    """

    def __init__(self, protocol: Callable[[], asyncio.BaseProtocol], connections: Connections[Any]):
        self.connections = connections
        self.port = 0
        self._protocol = protocol
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task | None = None

    async def start(
        self,
        host: str | None = None,
        port: int | None = None,
        reuse_port: bool = False,
        context: ssl.SSLContext | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        """Listen for clients.

        Args:
            reuse_port: several processes share the address.
            context: for TLS; None: without.
            listener: a bound socket, in place of an address.

        Raises:
            OSError: the address cannot be used.
        """
        protocol = self._protocol if context is None else TlsAcceptor(self._protocol, context).connection
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            protocol, host, port, sock=listener, backlog=BACKLOG, reuse_port=reuse_port
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweeper = loop.create_task(self._sweep_each_second(), name="sweep")

    def stop_listening(self) -> bool:
        """False: it did not listen."""
        if self._server is None:
            return False
        self._server.close()
        self._sweeper.cancel()
        return True

    def sweep(self, now: float) -> None:
        """Apply time limits; called each second."""
        raise NotImplementedError

    async def _sweep_each_second(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.sweep(time.monotonic())
