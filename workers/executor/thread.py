"""One thread that calls functions one after the other, for an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Done = Callable[[Any, BaseException | None], None]


class Thread:
    """A thread that runs calls in order, at little cost: the loop calls back."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._calls: SimpleQueue[tuple[Callable[..., Any], tuple, Done] | None] = SimpleQueue()
        # A call that never returns cannot be interrupted and must not keep the process.
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def call(self, function: Callable[..., Any], arguments: tuple, done: Done) -> None:
        """Queue ``function(*arguments)``; the loop then calls ``done(result, error)``."""
        self._calls.put((function, arguments, done))

    def close(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, arguments, done = call
            outcome, error = None, None
            try:
                outcome = function(*arguments)
            except BaseException as raised:
                error = raised
            self._loop.call_soon_threadsafe(done, outcome, error)
            # Release what this call held (a batch's tensors, an unloaded session) before waiting for the next.
            del call, function, arguments, done, outcome, error
