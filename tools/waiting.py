"""The one wait of tests and benchmarks: until something is so, or cannot become so any more."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

#: seconds; longer than any machine takes, however busy
LONGEST_S = 300.0
#: seconds between two looks at first
SHORTEST_PAUSE_S = 0.005


class Process(Protocol):
    """A process that is waited for. Where it has ``last_lines()``, they are in the error once it has ended."""

    def poll(self) -> int | None: ...


class _Wait:
    def __init__(self, what: Callable, timeout: float, every: float, why: str, of: Sequence[Process]) -> None:
        self._what, self._timeout, self._every, self._why, self._of = what, timeout, every, why, of
        self._began = time.monotonic()

    def pause_s(self, answer: Any) -> float:
        """Seconds until the next look: a tenth of those since the first one. Raises as :func:`eventually` does."""
        for process in self._of:
            if (status := process.poll()) is not None:
                lines = getattr(process, "last_lines", str)()
                raise RuntimeError(f"{self._why or self._what}: {process} ended with {status}\n{lines}")
        waited = time.monotonic() - self._began
        if waited >= self._timeout:
            why = self._why or inspect.getsource(self._what).strip()
            raise TimeoutError(f"{why} did not come true in {self._timeout:g} s; last answer: {answer!r}")
        return min(self._every, max(SHORTEST_PAUSE_S, waited / 10))


def eventually(
    what: Callable[[], Any], timeout: float = LONGEST_S, every: float = 0.5, why: str = "", of: Sequence[Process] = ()
) -> Any:
    """Look again and again until the answer of ``what`` is true, and return that answer.

    Args:
        timeout: seconds.
        every: most seconds between two looks.
        why: says what did not come true; else the source of ``what`` does.
        of: processes without which it cannot come true.

    Raises:
        RuntimeError: one of these processes has ended; the message has its last lines.
        TimeoutError: it did not come true in time; the message has the last answer.
    """
    wait = _Wait(what, timeout, every, why, of)
    while not (answer := what()):
        time.sleep(wait.pause_s(answer))
    return answer


async def eventually_async(
    what: Callable[[], Any], timeout: float = LONGEST_S, every: float = 0.5, why: str = "", of: Sequence[Process] = ()
) -> Any:
    """As :func:`eventually`, beside the loop's other tasks; ``what`` may be a coroutine function."""
    wait = _Wait(what, timeout, every, why, of)
    while True:
        answer = what()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        await asyncio.sleep(wait.pause_s(answer))
