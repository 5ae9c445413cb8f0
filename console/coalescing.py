"""One run for all that ask at about the same time."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Coalesced(Generic[Answer]):
    """Runs a function for all that ask while an earlier run is under way.

    Each gets the answer of a run that began after it asked, so that what happened before is in it: fifty browsers that
    come back together cost two runs. One event loop is served; see :func:`for_loop`.
    """

    def __init__(self, run: Callable[[], Awaitable[Answer]]):
        self._run = run
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[Answer] | None = None

    async def __call__(self) -> Answer:
        if self._next is None:
            self._next = asyncio.create_task(self._begin())
        # One that is cancelled does not take the answer from the others.
        return await asyncio.shield(self._next)

    async def _begin(self) -> Answer:
        async with self._lock:
            # Questions from now on are for the run after this one.
            self._next = None
            return await self._run()


def for_loop(run: Callable[[], Awaitable[Answer]]) -> Callable[[], Awaitable[Answer]]:
    """A function as :class:`Coalesced`, in each event loop apart."""
    loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Coalesced[Answer]] = weakref.WeakKeyDictionary()

    async def ask() -> Answer:
        loop = asyncio.get_running_loop()
        if loop not in loops:
            loops[loop] = Coalesced(run)
        return await loops[loop]()

    return ask
