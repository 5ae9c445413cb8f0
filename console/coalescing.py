"""Coalesces concurrent requests into one run."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Coalesced(Generic[Key, Answer]):
    """Runs a function once for all callers that ask while an earlier run is under way.

    It gets the keys that they ask for. Each caller gets the answer of a run that began after it asked, so that what
    happened before is in it: fifty browsers that come back together cost two runs. One event loop is served; see
    :func:`by_key`.
    """

    def __init__(self, run: Callable[[frozenset[Key]], Awaitable[Mapping[Key, Answer]]]):
        self._run = run
        self._lock = asyncio.Lock()
        self._keys: set[Key] = set()
        self._next: asyncio.Task[Mapping[Key, Answer]] | None = None

    async def __call__(self, key: Key) -> Answer:
        if self._next is None:
            self._keys = set()
            self._next = asyncio.create_task(self._begin())
        self._keys.add(key)
        # One that is cancelled does not take the answer from the others.
        return (await asyncio.shield(self._next))[key]

    async def _begin(self) -> Mapping[Key, Answer]:
        async with self._lock:
            # Questions from now on are for the run after this one.
            self._next = None
            return await self._run(frozenset(self._keys))


def by_key(run: Callable[[frozenset[Key]], Awaitable[Mapping[Key, Answer]]]) -> Callable[[Key], Awaitable[Answer]]:
    loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Coalesced] = weakref.WeakKeyDictionary()

    async def ask(key: Key) -> Answer:
        loop = asyncio.get_running_loop()
        if loop not in loops:
            loops[loop] = Coalesced(run)
        return await loops[loop](key)

    return ask
