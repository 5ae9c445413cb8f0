"""The lease of the device: it takes batches from one core at a time. Pure.

The device decides by itself, without a database or a vote. A core keeps its lease by asking for it again before it runs
out; afterwards the first that asks gets it. A core of a higher rank that leads elsewhere gets it back after the cluster
was divided, once its holder has drained the device (docs/decisions/10-fronts-and-cores.md).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import NamedTuple

#: how long a lease lasts from when it was last asked for
LEASE_S = 2.0
#: how much of it is left at most once its holder's connection is closed: a core that starts again gets it back
AWAY_S = 1.0
#: how long a holder may take to drain the device for another core
RECLAIM_S = 5.0


class LeaseTerms(NamedTuple):
    """An answer to a core.

    Attributes:
        epoch: number of the lease.
        held: whether that core holds it.
        holder: name of the core that holds it; empty: none does.
        reclaimed: the holder is to drain the device and release it.
        offered: the last holder stops.
    """

    epoch: int
    held: bool
    holder: str
    reclaimed: bool
    offered: bool = False


class Lease:
    """The lease of one device.

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
        """Whether batches of this connection are taken."""
        return core is self._holder

    @property
    def holder(self) -> Hashable | None:
        """The connection whose batches are taken."""
        return self._holder

    @property
    def mark(self) -> tuple[int, bool, bool]:
        """Another one after each change that cores have to learn of."""
        return self._epoch, self._holder is None, self._reclaimed_at is not None

    def ask(self, core: Hashable, name: str, leads: bool, now: float, lasts_s: float = LEASE_S) -> None:
        """A core asks to get or to keep the device.

        Args:
            leads: it holds another device already.
            lasts_s: how long it keeps it without asking again.
        """
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
        """The holder gives the device back; nothing where another one holds it.

        Args:
            stops: it wants no device any more.
        """
        if core is self._holder:
            self._holder, self._name, self._until, self._reclaimed_at = None, "", -math.inf, None
            self._offered = stops

    def gone(self, core: Hashable, now: float) -> None:
        """A connection was closed."""
        if core is self._holder:
            self._holder = None
            self._until = min(self._until, now + AWAY_S)

    def terms(self, core: Hashable, now: float) -> LeaseTerms:
        """The answer to the core."""
        held = core is self._holder
        holder = self._name if held or now < self._until else ""
        return LeaseTerms(self._epoch, held, holder, held and self._reclaimed_at is not None, self._offered)
