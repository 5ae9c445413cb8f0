"""Connections of gateways and the node, with a handler for each message."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from workers import log
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frame_limits import PeerLimits
from workers.protocol.frames import (
    Apply,
    AskLease,
    Cluster,
    ExecutorIdentity,
    Frame,
    Hello,
    Measure,
    MeasureCancel,
    Metrics,
    MetricsRequest,
    Moved,
    ReceivedBatch,
    ReceivedByExecutor,
    ReleaseLease,
    StateReport,
    Withdraw,
)
from workers.protocol.framing import FrameError

from .device import DeviceService
from .leases import LeaseService
from .measuring import Measuring

if TYPE_CHECKING:
    from .remote import RemoteCores

_log = log.get("executor.server")
_memory = functools.partial(np.empty, dtype=np.uint8)
Handler = Callable[[FrameConnection, Any, memoryview], None]


class PeerServer:
    """An error in a message closes its connection."""

    def __init__(self, device: DeviceService, measuring: Measuring, identity: ExecutorIdentity):
        self._device = device
        self._identity = identity
        self._measuring = measuring
        self._leases = LeaseService(device.peers.lease, device.peers.send, device.intake.not_leased, device.state)
        self._remote: RemoteCores | None = None
        self._connections: set[FrameConnection] = set()
        self._handlers = self._handled()

    def connection(self, kind: type[FrameConnection] = FrameConnection, **named) -> FrameConnection:
        made = self._on_message, self._on_closed, self._connections.add
        return kind(ReceivedByExecutor, *made, _memory, **named)

    def listen_to_cores(self, bound: socket.socket, limits: PeerLimits) -> None:
        """Listen to cores of other boxes, once the node daemon has said which."""
        # Imported where there may be some: it takes memory in each executor.
        from .remote import RemoteCores

        self._remote = RemoteCores(bound, self.connection, limits)

    def _cluster(self, message: Cluster) -> None:
        self._device.peers.lease.ranks = {name: rank for name, _, rank in message.cores}
        if self._remote is not None:
            self._remote.configure(message)

    def _on_message(self, connection: FrameConnection, message: Frame, body: memoryview) -> None:
        if connection.peer is None:
            if not isinstance(message, Hello):
                raise FrameError("the first frame must be Hello")
            return self._hello(connection, message)
        handle = self._handlers[connection.peer.role].get(type(message))
        if handle is None:
            if isinstance(message, Hello):
                raise FrameError("Hello may come once")
            raise FrameError(f"a {connection.peer.role} may not send {type(message).__struct_config__.tag}")
        handle(connection, message, body)

    def _handled(self) -> dict[str, dict[type, Handler]]:
        device, intake, measuring, leases = self._device, self._device.intake, self._measuring, self._leases
        return {
            "gateway": {
                AskLease: lambda connection, message, _: leases.asked(connection, message),
                ReleaseLease: lambda connection, message, _: leases.released(connection, message),
                ReceivedBatch: intake.dispatch,
                Withdraw: lambda connection, message, _: intake.withdraw(connection, message.id),
                Moved: lambda connection, message, _: device.peers.moved(connection, message.plan_version),
            },
            "node": {
                Cluster: lambda _, message, __: self._cluster(message),
                Apply: lambda _, message, __: device.residency.apply(message),
                Measure: lambda _, message, __: measuring.order(message),
                MeasureCancel: lambda _, message, __: measuring.cancel(message.job),
            },
            "metrics": {
                MetricsRequest: lambda connection, *_: device.peers.send(connection, Metrics(device.metrics())),
            },
        }

    def _hello(self, connection: FrameConnection, message: Hello) -> None:
        connection.check_hello(message, "gateway")
        if message.role not in self._handlers:
            raise FrameError(f"role {message.role!r}: must be gateway, node or metrics")
        connection.peer, peers = message, self._device.peers
        if message.role == "gateway":
            peers.gateways[connection] = 0
            self._leases.joined(connection, message)
            peers.send(connection, self._device.state())
        elif message.role == "node":
            peers.send(connection, self._identity)
            peers.nodes.add(connection)
            peers.send(connection, StateReport(self._device.device_state()))
        # Each scrape is a connection of its own.
        if message.role != "metrics":
            _log.info("peer_joined", role=message.role, name=message.name)

    def _on_closed(self, connection: FrameConnection, error: Exception | None) -> None:
        self._connections.discard(connection)
        self._leases.gone(connection)
        self._device.peers.gateways.pop(connection, None)
        self._device.peers.nodes.discard(connection)
        self._device.intake.gone(connection)
        peer = connection.peer
        if error is not None:
            _log.warning("peer_lost", name=peer.name if peer else "?", error=str(error) or type(error).__name__)

    async def close(self, within_s: float = 1.0) -> None:
        """Close all connections after pending writes, or after ``within_s`` seconds."""
        if self._remote is not None:
            self._remote.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        for connection in list(self._connections):
            connection.close()
        while self._connections and loop.time() < until:
            await asyncio.sleep(0.005)
