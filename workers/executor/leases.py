"""The lease of the device: it takes batches from one core at a time.

The device decides by itself, without a database or a vote. A core keeps its lease by asking for it again before it runs
out; afterwards the first that asks gets it. A core of a higher rank that leads elsewhere gets it back after the cluster
was divided, once its holder has drained the device (docs/decisions/10-fronts-and-cores.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping

import msgspec

from workers import log
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import AskLease, ExecutorState, Frame, Hello, LearnedOfDevice, LeaseState, ReleaseLease

_log = log.get("executor.leases")
#: how long a lease lasts from when it was last asked for
LEASE_S = 2.0
#: how much of it is left at most once its holder's connection is closed: a core that starts again gets it back
AWAY_S = 1.0
#: how long a holder may take to drain the device for another core
RECLAIM_S = 5.0


class Lease:
    """The rules of the lease. Pure.

    A core is any object that stands for its connection, with a name. Times are in seconds on the monotonic clock.

    Attributes:
        ranks: by name of the cores that may hold it, the lower the better; others come behind them.
    """

    def __init__(self) -> None:
        self.ranks: Mapping[str, int] = {}
        self._holder: Hashable | None = None
        self._name = ""
        self._until = -math.inf
        self._epoch = 0
        self._reclaimed_at: float | None = None
        self._offered = False

    def held_by(self, core: Hashable) -> bool:
        return core is self._holder

    @property
    def holder(self) -> Hashable | None:
        return self._holder

    @property
    def mark(self) -> tuple[int, bool, bool]:
        """Another one after each change that cores have to learn of."""
        return self._epoch, self._holder is None, self._reclaimed_at is not None

    def ask(self, core: Hashable, name: str, leads: bool, now: float, lasts_s: float = LEASE_S) -> None:
        """Get or keep the device for ``lasts_s``; ``leads``: the core holds another one."""
        if core is self._holder:
            self._until = now + lasts_s
        elif self._takes(name, now):
            self._holder = core
            self._name, self._until, self._reclaimed_at = name, now + lasts_s, None
            self._offered = False
            self._epoch += 1
        elif leads and self._rank(name) < self._rank(self._name) and self._reclaimed_at is None:
            self._reclaimed_at = now

    def _takes(self, name: str, now: float) -> bool:
        # A core that lost its connection and is back is the same one.
        if now >= self._until or (self._holder is None and name == self._name):
            return True
        reclaimed = self._reclaimed_at is not None and now >= self._reclaimed_at + RECLAIM_S
        return reclaimed and self._rank(name) < self._rank(self._name)

    def _rank(self, name: str) -> float:
        return self.ranks.get(name, math.inf)

    def release(self, core: Hashable, stops: bool = False) -> None:
        """Give the device back; ``stops``: the core wants none any more."""
        if core is self._holder:
            self._holder, self._name, self._until, self._reclaimed_at = None, "", -math.inf, None
            self._offered = stops

    def gone(self, core: Hashable, now: float) -> None:
        if core is self._holder:
            self._holder = None
            self._until = min(self._until, now + AWAY_S)

    def state(self, core: Hashable, now: float, number: int = 0) -> LeaseState:
        """The lease as the core sees it, in answer to its question ``number``; 0: unasked."""
        held = core is self._holder
        holder = self._name if held or now < self._until else ""
        reclaimed = held and self._reclaimed_at is not None
        return LeaseState(number, self._epoch, held, holder, reclaimed, self._offered)


class LeaseService:
    """Holds the device's one lease, and reports its changes to gateways."""

    def __init__(
        self,
        lease: Lease,
        send: Callable[[FrameConnection, Frame], bool],
        on_taken: Callable[[FrameConnection], None],
        state: Callable[[], ExecutorState],
    ) -> None:
        self._lease, self._send, self._on_taken, self._state = lease, send, on_taken, state
        self._asking: set[FrameConnection] = set()
        #: by the core that has the device, or had it last
        self._learned: LearnedOfDevice | None = None

    def joined(self, connection: FrameConnection, hello: Hello) -> None:
        """One of older code cannot ask: it holds the device while nobody else does."""
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
        if self._lease.held_by(connection):
            self._keep(connection, message.learned)
            self._lease.release(connection, message.stops)
            self._changed(None)

    def _keep(self, connection: FrameConnection, learned: LearnedOfDevice | None) -> None:
        if learned is not None and self._lease.held_by(connection):
            self._learned = learned

    def gone(self, connection: FrameConnection) -> None:
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
            _log.info("lease_granted", core=name, epoch=lease.state(connection, now).epoch)
            if before is not None:
                self._on_taken(before)
            if connection in self._asking:
                # First, so that the core knows what still runs here before it dispatches anything.
                self._send(connection, msgspec.structs.replace(self._state(), learned=self._learned))
        self._changed(connection)

    def _changed(self, asking: FrameConnection | None) -> None:
        for connection in self._asking:
            if connection is not asking:
                self._tell(connection)

    def _tell(self, connection: FrameConnection, number: int = 0) -> None:
        self._send(connection, self._lease.state(connection, time.monotonic(), number))
