"""Limits on transfers of stored files, in number and rate.

Models must not take the whole link. A web process sends at most ``most`` files at a time, one to each receiver; those
beyond are asked to come again, and places go to the receiver that has waited longest. All transfers share
``bytes_per_s`` evenly, since each waits its turn for every chunk. Pure except for the waiting: ``now`` (seconds,
steady) is handed in.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Hashable

#: seconds after which a receiver without a place should ask again
AGAIN_S = 5
#: seconds after which a receiver that does not ask again has lost its turn, and a transfer without a byte its place
FORGOTTEN_S = 3.0 * AGAIN_S
STALLED_S = 60.0


class Transfer:
    """A file on its way. ``moved``: when a chunk was last taken."""

    def __init__(self, receiver: Hashable, now: float) -> None:
        self.receiver, self.moved = receiver, now


class Places:
    """The receivers to which a file may be sent now. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._under_way: set[Transfer] = set()
        self._waiting: dict[Hashable, float] = {}

    def take(self, receiver: Hashable, now: float) -> Transfer | None:
        """A place for a transfer; None: the receiver must ask again after :data:`AGAIN_S`."""
        with self._lock:
            self._under_way = {one for one in self._under_way if now - one.moved < STALLED_S}
            self._waiting = {one: asked for one, asked in self._waiting.items() if now - asked < FORGOTTEN_S}
            free = self._most - len(self._under_way)
            if any(one.receiver == receiver for one in self._under_way):
                return None
            # A dict keeps the order of the first time that each of them asked.
            ahead = list(self._waiting).index(receiver) if receiver in self._waiting else len(self._waiting)
            if ahead >= free:
                self._waiting[receiver] = now
                return None
            self._waiting.pop(receiver, None)
            transfer = Transfer(receiver, now)
            self._under_way.add(transfer)
            return transfer

    def free(self, transfer: Transfer) -> None:
        with self._lock:
            self._under_way.discard(transfer)

    def __len__(self) -> int:
        return len(self._under_way)


class Pace:
    """The rate that all transfers share, bytes/s; 0: no limit."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._next = 0.0

    def wait(self, size: int, now: float) -> float:
        """Seconds until a chunk may be sent; turns are in the order of the calls."""
        if not self._bytes_per_s:
            return 0.0
        self._next = max(self._next, now) + size / self._bytes_per_s
        return self._next - size / self._bytes_per_s - now

    async def turn(self, size: int) -> None:
        if (pause := self.wait(size, time.monotonic())) > 0:
            await asyncio.sleep(pause)
