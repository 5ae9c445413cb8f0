"""The gRPC server around :class:`~.rpc.Rpc`: where it listens, its limits, and how it stops."""

from __future__ import annotations

import asyncio
import os
import socket

import grpc.aio

from .rpc import Rpc

#: calls under way at once, whatever they do: open streams, too
MAX_CALLS = 20_000
#: calls that are told that the gateway stops get this long to be told (s)
FAREWELL_S = 0.3
#: a connection that says nothing for so long is asked whether it is still there (ms), and given up after the second
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 120_000, 20_000
#: clients may ask so often (ms); the library's own 5 minutes cuts off clients with an ordinary keep-alive setting
CLIENT_KEEPALIVE_MS = 10_000


class RpcServer:
    """Listens for gRPC in the running event loop.

    ``max_message_bytes``: largest message, as it came and decompressed; the library refuses a larger one with
    RESOURCE_EXHAUSTED before this gateway sees it.
    """

    def __init__(self, rpc: Rpc, max_message_bytes: int):
        self._rpc = rpc
        self._max_message_bytes = max_message_bytes
        self._server: grpc.aio.Server | None = None
        self._stopped: asyncio.Task | None = None
        self.port = 0
        """the port that it listens on"""

    async def start(self, host: str, port: int, reuse_port: bool = False) -> None:
        """Listen; with ``reuse_port`` beside other processes that do so too.

        Raises:
            OSError: the address cannot be used.
        """
        await _check(host, port, reuse_port)
        # Its own lines would stand between the structured ones of the log; what matters it also raises.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        self._server = grpc.aio.server(
            handlers=[self._rpc],
            maximum_concurrent_rpcs=MAX_CALLS,
            options=[
                # Without a wish two processes could listen on one address, and neither would know.
                ("grpc.so_reuseport", int(reuse_port)),
                ("grpc.max_receive_message_length", self._max_message_bytes),
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", CLIENT_KEEPALIVE_MS),
            ],
        )
        name = f"[{host}]" if ":" in host else host
        try:
            self.port = self._server.add_insecure_port(f"{name}:{port}")
        except RuntimeError as error:
            raise OSError(str(error)) from None
        await self._server.start()

    async def drain(self, grace_s: float) -> None:
        """Take no more calls, and let those under way finish for up to ``grace_s``."""
        if self._server is None:
            return
        self._rpc.stop()
        self._stopped = asyncio.create_task(self._server.stop(grace_s + FAREWELL_S), name="grpc-stop")
        await asyncio.wait([self._stopped], timeout=grace_s)

    async def close(self) -> None:
        """End; what was not answered until now is cut off, after a moment for answers on their way."""
        if self._stopped is not None:
            await self._stopped


async def _check(host: str, port: int, reuse_port: bool) -> None:
    """Raises OSError with the reason why nobody can listen there, of which the library tells nothing."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind(address)
