"""One timer for each device. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from .options import INF


class TimerQueue:
    """Each device has one, ``wake_at``; ``at``: when the first is due, or earlier."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Any]] = []
        self._number = 0
        self.at = INF

    def set(self, device: Any, when: float) -> None:
        if device.wake_at != when:
            device.wake_at = when
            if when < INF:
                self._number += 1
                heappush(self._heap, (when, self._number, device))
                if when < self.at:
                    self.at = when

    def due(self, now: float) -> Iterator[Any]:
        """Yield the devices whose timers are due, also meanwhile, and remove these timers."""
        heap = self._heap
        while heap:
            when, _, device = heap[0]
            if device.wake_at != when:
                # Replaced.
                heappop(heap)
                continue
            if when > now:
                break
            heappop(heap)
            device.wake_at = INF
            yield device
        self.at = heap[0][0] if heap else INF
