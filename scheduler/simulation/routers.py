"""The routers by name that a simulation can have: those that serve live, and two to compare them with."""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable

from workers.dispatch.published import routing
from workers.dispatch.published.routing.router import PlanRouter, Router, Shares


class UniformOrder:
    """Each device as likely: the ablation without query assignment of Proteus, Section 6.1, as its simulator has it."""

    def __init__(self, source: random.Random, shares: Shares) -> None:
        self._random = source
        self._devices = [device for device, _ in shares]

    def take(self, rows: int, able: Collection[Hashable]) -> Hashable | None:
        """See :class:`workers.dispatch.published.routing.router.Order`."""
        devices = [device for device in self._devices if device in able]
        return devices[int(self._random.random() * len(devices))] if devices else None


class RoundRobinOrder:
    """One device after the other, whatever their shares."""

    def __init__(self, shares: Shares) -> None:
        self._devices = [device for device, _ in shares]
        self._next = 0

    def take(self, rows: int, able: Collection[Hashable]) -> Hashable | None:
        """See :class:`workers.dispatch.published.routing.router.Order`."""
        for _ in self._devices:
            device = self._devices[self._next % len(self._devices)]
            self._next += 1
            if device in able:
                return device
        return None


UNIFORM, ROUND_ROBIN = "uniform", "round-robin"


def names() -> list[str]:
    """All names, those that serve live first."""
    return [*routing.names(), UNIFORM, ROUND_ROBIN]


def create(name: str, seed: int = 0) -> Router:
    """A router; ``seed`` is for those that choose by chance.

    Raises:
        UnknownRouting: no such router.
    """
    if name == UNIFORM:
        source = random.Random(f"{seed}:routing")
        return PlanRouter(lambda shares: UniformOrder(source, shares))
    return PlanRouter(RoundRobinOrder) if name == ROUND_ROBIN else routing.create(name)
