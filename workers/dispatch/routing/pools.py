"""One thing for each set of devices that will do: queries that insist on the same devices take turns among themselves.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

Pool = TypeVar("Pool")

#: sets of devices that are remembered at once; queries of an application insist on few variants and accuracies
MOST = 16


class Pools(Generic[Pool]):
    """Things by set of devices, made when they are first asked for; when there are more than :data:`MOST`, the one that
    was asked for the longest time ago goes.

    Args:
        make: from the devices that will do, or None for any.
        discard: is told of one that goes.
    """

    def __init__(
        self, make: Callable[[Collection[str] | None], Pool], discard: Callable[[Pool], None] = lambda pool: None
    ):
        self._make = make
        self._discard = discard
        self._any = make(None)
        self._some: dict[frozenset[str], Pool] = {}

    def of(self, allowed: Collection[str] | None) -> Pool:
        """The thing for these devices. A frozenset that is asked for again is found without a look at its members."""
        if allowed is None:
            return self._any
        key = frozenset(allowed)
        pool = self._some.pop(key, None)
        if pool is None:
            pool = self._make(key)
            if len(self._some) >= MOST:
                self._discard(self._some.pop(next(iter(self._some))))
        self._some[key] = pool
        return pool

    def all(self) -> list[Pool]:
        """All there are."""
        return [self._any, *self._some.values()]
