"""Access from cores on other boxes, by TCP with mutual TLS."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from workers import log
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frame_limits import PeerLimits
from workers.protocol.frames import Cluster
from workers.trust.authority import CertificateError
from workers.trust.endpoints import MemberListener
from workers.trust.member import PeerIdentity

_log = log.get("executor.remote")


class RemoteCores:
    def __init__(self, bound: socket.socket, make: Callable[..., FrameConnection], limits: PeerLimits) -> None:
        self._listed: frozenset[PeerIdentity] = frozenset()
        self._listener = MemberListener(bound, make, lambda identity: identity in self._listed, limits)
        self._using: asyncio.Task | None = None
        self._pem = b""

    def configure(self, message: Cluster) -> None:
        """Accept these cores and no others, under this node's certificate."""
        self._listed = frozenset(PeerIdentity("gateway", name, key_hash) for name, key_hash, _ in message.cores)
        self._listener.cut_unlisted()
        self._pem = message.pem
        if self._pem and (self._using is None or self._using.done()):
            self._using = asyncio.get_running_loop().create_task(self._use(), name="remote-cores")

    async def _use(self) -> None:
        pem = b""
        while pem != self._pem:
            pem = self._pem
            try:
                await self._listener.use(pem)
                _log.info("listens_to_cores")
            except (CertificateError, OSError) as error:
                _log.error("certificate_unusable", reason=str(error))

    def close(self) -> None:
        self._listener.close()
