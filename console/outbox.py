"""Bounded queue of messages to one browser.

Pure: plain data in, plain data out. An overflow drops all messages and marks a resync: to a browser that reads too
slowly the server sends the whole state again.
"""

from __future__ import annotations

from collections import deque
from typing import Any

#: messages of a few kB; several seconds of a large cluster
LIMIT = 256


class BrowserOutbox:
    """Messages to a browser, in order.

    Args:
        limit: most that may wait; one more empties the outbox and requests a resync.
    """

    def __init__(self, limit: int = LIMIT):
        self._limit = limit
        self._waiting: deque[dict[str, Any]] = deque()
        self.resync = False
        """The browser missed messages: send history and snapshot before anything else."""
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __bool__(self) -> bool:
        return self.resync or bool(self._waiting)

    def put(self, message: dict[str, Any]) -> None:
        if len(self._waiting) >= self._limit:
            self.dropped += len(self._waiting) + 1
            self.ask_resync()
            return
        self._waiting.append(message)

    def ask_resync(self) -> None:
        """Drop what waits, except for the answer to a ping: the whole state follows."""
        pongs = [message for message in self._waiting if message["event"] == "pong"]
        self._waiting.clear()
        self._waiting.extend(pongs[-1:])
        self.resync = True

    def take(self) -> dict[str, Any] | None:
        return self._waiting.popleft() if self._waiting else None

    def resynced(self) -> None:
        """Note that the state is about to be read: events from now on are newer."""
        self.resync = False
