"""When each device is to be looked at again. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from .late.state import Device
from .options import INF


class Wakes:
    """One time for each device, the newest that was set. ``at``: the first of all, or earlier; inf: there is none."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Device]] = []
        self._number = 0
        self.at = INF

    def set(self, device: Device, when: float) -> None:
        """Look at the device then, and no earlier; inf: not at all."""
        if device.wake_at != when:
            device.wake_at = when
            if when < INF:
                self._number += 1
                heappush(self._heap, (when, self._number, device))
                if when < self.at:
                    self.at = when

    def due(self, now: float) -> Iterator[Device]:
        """The devices whose time has come, also those for which it comes meanwhile; each time only once."""
        heap = self._heap
        while heap:
            when, _, device = heap[0]
            if device.wake_at != when:
                # Another time was set since.
                heappop(heap)
                continue
            if when > now:
                break
            heappop(heap)
            device.wake_at = INF
            yield device
        self.at = heap[0][0] if heap else INF
