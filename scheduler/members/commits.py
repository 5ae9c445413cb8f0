"""Changes that connections make at the same time, committed together.

SQLite has one write lock, and each commit waits for the disk: after a mass join hundreds of changes would queue for
both. Changes that come while a transaction runs share the next one, each in a savepoint of its own. A change that comes
alone does not wait.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from django.db import DatabaseError, transaction

from scheduler.members.configurations import in_thread
from scheduler.members.loops import per_loop

#: seconds after which a transaction takes no more changes: others wait for the write lock meanwhile
HELD_S = 0.1


class _Outcome(NamedTuple):
    value: Any = None
    error: Exception | None = None


class GroupCommit:
    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future]] = deque()
        self._running: asyncio.Task | None = None

    async def make(self, change: Callable[[], Any]) -> Any:
        """Make a change in a thread, and return its value once it is committed.

        ``change`` must not register hooks for after the commit that raise: others' changes are committed with it.

        Raises:
            DatabaseError: it was not committed.
            Exception: ``change`` raised it, and was taken back.
        """
        made = asyncio.get_running_loop().create_future()
        self._waiting.append((change, made))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="commits")
        return await made

    async def _run(self) -> None:
        while self._waiting:
            outcomes = await in_thread(commit)([change for change, _ in self._waiting])
            for value, error in outcomes:
                _, made = self._waiting.popleft()
                if made.done():
                    continue  # its connection ended meanwhile
                if error is None:
                    made.set_result(value)
                else:
                    made.set_exception(error)


def commit(changes: Sequence[Callable[[], Any]]) -> list[_Outcome]:
    """Make the first of these changes, at least one, in one transaction."""
    outcomes: list[_Outcome] = []
    ends = time.monotonic() + HELD_S
    try:
        with transaction.atomic():
            for change in changes:
                outcomes.append(_attempt(change))
                if time.monotonic() > ends:
                    break
            if transaction.get_rollback():
                raise DatabaseError("the transaction of several members was rolled back")
    except Exception as error:
        # Where it could not begin, none can be made now.
        return [_Outcome(error=error)] * (len(outcomes) or len(changes))
    return outcomes


def _attempt(change: Callable[[], Any]) -> _Outcome:
    try:
        with transaction.atomic():
            return _Outcome(change())
    except Exception as error:
        return _Outcome(error=error)


_commits = per_loop(GroupCommit)


async def together(change: Callable[..., Any], *args: Any) -> Any:
    """Make a change with those that other connections make now."""
    return await _commits().make(functools.partial(change, *args))
