"""The routers of simulations, by name.

They are those that serve live, and two to compare them with.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable

from workers.dispatch.published import routing
from workers.dispatch.published.routing.router import Router, Shares


class UniformOrder:
    """An order with each device as likely: Proteus without query assignment.

    This is the ablation of its Section 6.5, as its simulator has it.
    """

    def __init__(self, source: random.Random, shares: Shares) -> None:
        self._random = source
        self._devices = [device for device, _ in shares]

    def take(self, rows: int, able: Collection[Hashable]) -> Hashable | None:
        """See :class:`workers.dispatch.published.routing.shares.Round`."""
        devices = [device for device in self._devices if device in able]
        return devices[int(self._random.random() * len(devices))] if devices else None


class RoundRobinOrder:
    """One device after the other, whatever their shares."""

    def __init__(self, shares: Shares) -> None:
        self._devices = [device for device, _ in shares]
        self._next = 0

    def take(self, rows: int, able: Collection[Hashable]) -> Hashable | None:
        """See :class:`workers.dispatch.published.routing.shares.Round`."""
        for _ in self._devices:
            device = self._devices[self._next % len(self._devices)]
            self._next += 1
            if device in able:
                return device
        return None


def _uniform(seed: int) -> Router:
    source = random.Random(f"{seed}:routing")
    return Router(lambda shares: UniformOrder(source, shares))


#: by name: makes a router from the scenario's seed; those that serve live come first
ROUTERS: dict[str, Callable[[int], Router]] = {
    **{name: lambda _seed, router=router: router() for name, router in routing.ROUTERS.items()},
    "uniform": _uniform,
    "round-robin": lambda _seed: Router(RoundRobinOrder),
}
