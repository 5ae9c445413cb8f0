"""Processes that play a part of a benchmark beside it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any


class Spawned:
    """A function in a process of its own, which gets a pipe and what is given.

    It ends once the pipe is closed. Not forked: it must not share this process's threads and connections.
    """

    def __init__(self, part: Callable[..., None], *given: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=part, args=(theirs, *given), daemon=True)
        self._process.start()
        theirs.close()

    def heard(self) -> Any:
        """What it says next. Raises RuntimeError: it has ended, or says so."""
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise RuntimeError(f"{self._process.name} has ended") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, question: Any) -> Any:
        self._pipe.send(question)
        return self.heard()

    def close(self, seconds: float = 10.0) -> None:
        self._pipe.close()
        self._process.join(seconds)
        self._process.kill()
