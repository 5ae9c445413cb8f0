"""Exchange messages with gateways about the lease of the device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from workers import log
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import AskLease, ExecutorState, Hello, LearnedOfDevice, LeaseState, ReleaseLease

from .leases import LEASE_S
from .peers import Peers

_log = log.get("executor.leases")


class LeaseService:
    """Holds the device's one lease, and reports its changes to gateways.

    Requests, releases and lost connections change it.

    Args:
        on_taken: called with a connection that lost the lease while it was open.
        state: the device's present state, of which a core that gets the device has an old one.
    """

    def __init__(
        self, peers: Peers, on_taken: Callable[[FrameConnection], None], state: Callable[[], ExecutorState]
    ) -> None:
        self._peers, self._lease, self._on_taken, self._state = peers, peers.lease, on_taken, state
        self._asking: set[FrameConnection] = set()
        #: by the core that has the device, or had it last
        self._learned: LearnedOfDevice | None = None

    def joined(self, connection: FrameConnection, hello: Hello) -> None:
        """Handle a gateway that connected.

        One of older code cannot ask, and holds the device for as long as nobody else does.
        """
        if hello.leases:
            self._asking.add(connection)
            self._tell(connection)
        else:
            self._ask(connection, False, math.inf)

    def asked(self, connection: FrameConnection, message: AskLease) -> None:
        """A gateway asks for the lease, or how it is."""
        if message.wanted:
            self._ask(connection, message.leads)
        self._keep(connection, message.learned)
        self._tell(connection, message.number)

    def released(self, connection: FrameConnection, message: ReleaseLease) -> None:
        """A gateway gives the device back."""
        if self._lease.held_by(connection):
            self._keep(connection, message.learned)
            self._lease.release(connection, message.stops)
            self._changed(None)

    def _keep(self, connection: FrameConnection, learned: LearnedOfDevice | None) -> None:
        if learned is not None and self._lease.held_by(connection):
            self._learned = learned

    def gone(self, connection: FrameConnection) -> None:
        """A gateway's connection was closed."""
        self._asking.discard(connection)
        if self._lease.held_by(connection):
            self._lease.gone(connection, time.monotonic())
            self._changed(None)

    def _ask(self, connection: FrameConnection, leads: bool, lasts_s: float = LEASE_S) -> None:
        lease, now, name = self._lease, time.monotonic(), connection.peer.name
        before, mark = lease.holder, lease.mark
        lease.ask(connection, name, leads, now, lasts_s)
        if lease.mark == mark:
            return
        if lease.holder is not before:
            _log.info("lease_granted", core=name, epoch=lease.terms(connection, now).epoch)
            if before is not None:
                self._on_taken(before)
            if connection in self._asking:
                # First, so that the core knows what still runs here before it dispatches anything.
                self._peers.send(connection, msgspec.structs.replace(self._state(), learned=self._learned))
        self._changed(connection)

    def _changed(self, asking: FrameConnection | None) -> None:
        for connection in self._asking:
            if connection is not asking:
                self._tell(connection)

    def _tell(self, connection: FrameConnection, number: int = 0) -> None:
        self._peers.send(connection, LeaseState(number, *self._lease.terms(connection, time.monotonic())))
