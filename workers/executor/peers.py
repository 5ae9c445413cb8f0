"""Connected peers: gateways, with the plan that each follows, and the node daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from workers import log
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import Buffer, Frame

from .leases import Lease

_log = log.get("executor.peers")
#: a peer that lets this much pile up has stopped reading, and its answers are worthless by now
MAX_PENDING_BYTES = 256 * 1024 * 1024


class Peers:
    """Connections after their Hello."""

    def __init__(self) -> None:
        #: with the plan that each routes by
        self.gateways: dict[FrameConnection, int] = {}
        self.lease = Lease()
        self.nodes: set[FrameConnection] = set()

    async def orphaned(self, after_s: float) -> None:
        alone_s, step_s = 0.0, min(1.0, after_s / 4)
        while alone_s < after_s:
            await asyncio.sleep(step_s)
            alone_s = 0.0 if self.nodes or self.gateways else alone_s + step_s

    def moved(self, connection: FrameConnection, plan_version: int) -> None:
        self.gateways[connection] = max(plan_version, self.gateways[connection])

    def all_moved(self, plan_version: int) -> bool:
        """Whether the device's gateway routes by this plan or a newer one; without, all."""
        holder = self.lease.holder
        moved = self.gateways.values() if holder is None else (self.gateways[holder],)
        return all(version >= plan_version for version in moved)

    def send_to_gateways(self, message: Frame) -> None:
        for connection in list(self.gateways):
            self.send(connection, message)

    def report(self, message: Frame) -> None:
        """Send to the node."""
        for connection in list(self.nodes):
            self.send(connection, message)

    def send(self, connection: FrameConnection, message: Frame, body: Sequence[Buffer] = ()) -> bool:
        """False where the peer is gone or stopped reading."""
        return (not connection.backed_up or self._reads(connection)) and connection.send(message, body)

    def send_all(self, connection: FrameConnection, messages: Sequence[tuple[Frame, Sequence[Buffer]]]) -> bool:
        """Several frames in one write; as :meth:`send`."""
        return (not connection.backed_up or self._reads(connection)) and connection.send_all(messages)

    def _reads(self, connection: FrameConnection) -> bool:
        if connection.pending_bytes() <= MAX_PENDING_BYTES:
            return True
        _log.warning("peer_stopped_reading", peer=connection.peer.name if connection.peer else "?")
        connection.transport.abort()
        return False
