"""Times at which a core asks for devices. Pure.

A core that has devices asks for every free one at once; one that has none while another core has some stands by, and
asks for a device only once it has stayed free for a moment (docs/decisions/10-fronts-and-cores.md).
"""

from __future__ import annotations

import math

from workers.protocol.frames import AskLease, LeaseState

#: seconds between two questions about one device: several fit into a lease (:data:`workers.executor.leases.LEASE_S`)
ASK_EVERY_S = 0.4
#: the same of a core that does not have the device
LOOK_EVERY_S = 0.2
#: how long a device has to be free before a core that stands by asks for it
PATIENCE_S = 0.3
#: how long a core that gave a device back waits before it asks for it again: who reclaimed it is on its way
YIELD_S = 1.0


class DeviceLease:
    """The device's lease as one connection to its executor knows it.

    Times are in seconds on the monotonic clock.

    Attributes:
        held: this core may dispatch there.
        reclaimed: this core is to drain the device, and to release it.
        elsewhere: another core holds it.
        given_up: another core held it, and nobody does now.
        offered: that core stops, so that this one need not wait for it.

    Args:
        name: this core's; a lease of the same name is one from before it started again, and it may have it at once.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.held = self.reclaimed = self.elsewhere = self.given_up = self.offered = False
        self._free_since = math.inf
        self._number = 0
        self._epoch = self._released = -1
        self._yields_until = -math.inf
        self._asked_at = -math.inf
        self._next_at = -math.inf

    def reported(self, state: LeaseState, now: float) -> float | None:
        """Handle a state; return the seconds since the latest question if it answers it."""
        # The executor may have sent it before it read that the device was given back.
        self.held = state.held and state.epoch != self._released
        self.reclaimed = self.held and state.reclaimed
        self._epoch = state.epoch
        before = self.elsewhere or self.given_up
        self.elsewhere = not self.held and state.holder not in ("", self._name)
        free = not self.held and not self.elsewhere
        self.given_up = free and before
        self.offered = free and state.offered
        self._free_since = min(self._free_since, now) if free else math.inf
        if free or state.reclaimed:
            self._next_at = now
        return now - self._asked_at if state.number and state.number == self._number else None

    def release(self, now: float, stops: bool = False) -> None:
        self.held = self.reclaimed = False
        self._released, self._yields_until = self._epoch, math.inf if stops else now + YIELD_S

    def due(self, now: float) -> bool:
        return now >= self._next_at

    def question(self, leads: bool, stands_by: bool, now: float) -> AskLease | None:
        """The request that is due now, if any.

        Args:
            leads: this core has another device.
            stands_by: another core has devices, or is expected to have them soon.
        """
        if not self.due(now):
            return None
        if self.held:
            wanted = not self.reclaimed
        elif self.elsewhere:
            wanted = leads
        elif now < self._yields_until:
            wanted = False
        else:
            wanted = leads or not stands_by or now - self._free_since >= PATIENCE_S
        self._number += 1
        self._asked_at = now
        self._next_at = now + (ASK_EVERY_S if self.held else LOOK_EVERY_S)
        return AskLease(self._number, wanted, leads)
