"""The routers by name that a simulation can have: those that serve live, and two that are there to be compared with."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

from workers.dispatch import routing
from workers.dispatch.routing.plan_only import PlanOnlyRouter, Shares
from workers.dispatch.routing.router import QueryRouter


class UniformRouter(PlanOnlyRouter):
    """Any of the application's devices, each as likely: the ablation without query assignment of Proteus, Section 6.1,
    and what its published simulator does."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._random = random.Random(f"{seed}:routing")

    def _turns(self, shares: Shares) -> _Lots:
        return _Lots(self._random)


class _Lots:
    """Each as likely."""

    def __init__(self, source: random.Random):
        self._random = source
        self._present: list[str] = []
        self._places: dict[str, int] = {}

    def attend(self, names: Sequence[str]) -> None:
        self._present = list(names)
        self._places = {name: place for place, name in enumerate(names)}

    def take(self, rows: int, exclude: Collection[str]) -> str | None:
        barred = sorted({self._places[name] for name in exclude if name in self._places})
        count = len(self._present) - len(barred)
        if not count:
            return None
        place = int(self._random.random() * count)
        for gap in barred:
            # Places from here on are one further, since nobody draws this one.
            place += place >= gap
        return self._present[place]


class RoundRobinRouter(PlanOnlyRouter):
    """The application's devices in turn, whatever their shares."""

    def _turns(self, shares: Shares) -> _InTurn:
        return _InTurn()


class _InTurn:
    """One after the other."""

    def __init__(self) -> None:
        self._present: list[str] = []
        self._next = 0

    def attend(self, names: Sequence[str]) -> None:
        self._present = list(names)

    def take(self, rows: int, exclude: Collection[str]) -> str | None:
        for _ in self._present:
            name = self._present[self._next % len(self._present)]
            self._next += 1
            if name not in exclude:
                return name
        return None


_ROUTERS: dict[str, Callable[[int], QueryRouter]] = {
    "uniform": UniformRouter,
    "round-robin": lambda seed: RoundRobinRouter(),
}


def names() -> list[str]:
    """The names, the live default first."""
    return [*routing.names(), *_ROUTERS]


def create(name: str, seed: int = 0) -> QueryRouter:
    """A router; ``seed`` is for those that choose by chance.

    Raises:
        UnknownRouting: no such router.
    """
    return _ROUTERS[name](seed) if name in _ROUTERS else routing.create(name, seed)
