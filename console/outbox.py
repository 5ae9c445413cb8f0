"""Bounded queue of messages to one browser.

An overflow drops all messages: to a browser that reads too slowly the server sends the whole state again.
"""

from __future__ import annotations

from collections import deque
from typing import Any

#: messages of a few kB; several seconds of a large cluster
LIMIT = 256
#: stands for the state as it will be when it is sent
SNAPSHOT = {"event": "snapshot"}


class BrowserOutbox:
    """Messages to a browser, in order; of more than ``limit`` only :data:`SNAPSHOT` is kept.

    Attributes:
        dropped: messages that were dropped by overflows.
        overflowed: whether there was an overflow since its owner last set this to False.
    """

    def __init__(self, limit: int = LIMIT):
        self._limit = limit
        self._waiting: deque[dict[str, Any]] = deque()
        self.dropped = 0
        self.overflowed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: dict[str, Any]) -> None:
        if len(self._waiting) < self._limit:
            self._waiting.append(message)
        else:
            self.dropped += len(self._waiting) + 1
            self.overflowed = True
            self.restart()

    def restart(self) -> None:
        """Drop what waits, except for the answer to a ping: the whole state follows."""
        pongs = [message for message in self._waiting if message["event"] == "pong"]
        self._waiting = deque([*pongs[-1:], SNAPSHOT])

    def take(self) -> dict[str, Any] | None:
        return self._waiting.popleft() if self._waiting else None
