"""Limits on transfers of stored files, in number and rate.

Models must not take the whole link. A web process sends at most ``most`` files at a time, one to each receiver; those
beyond are asked to come again, and whoever asks first once a place is free gets it. All transfers share
``bytes_per_s`` evenly, since each waits its turn for every chunk. Pure except for the waiting: ``now`` (seconds,
steady) is handed in.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Hashable

#: files that a web process sends at a time
MOST = 8
#: seconds after which a receiver without a place should ask again
AGAIN_S = 5
#: seconds after which a transfer without a byte has lost its place
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

    def take(self, receiver: Hashable, now: float) -> Transfer | None:
        """A place for a transfer; None: the receiver must ask again after :data:`AGAIN_S`."""
        with self._lock:
            self._under_way = {one for one in self._under_way if now - one.moved < STALLED_S}
            if len(self._under_way) >= self._most or any(one.receiver == receiver for one in self._under_way):
                return None
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
