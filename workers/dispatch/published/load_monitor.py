"""An application's load as a moving average over 500 ms (RAMSIS, Section 6). Pure."""

from __future__ import annotations

#: seconds of the average, its slots, and the least time that the first average is taken over
WINDOW_S, SLOTS, LEAST_S = 0.5, 50, 0.1


class LoadMonitor:
    """Rows/s of the last 500 ms, in slots of 10 ms. Time must not go back."""

    __slots__ = ("_began", "_slot", "_slots", "_sum")

    def __init__(self) -> None:
        self._slots = [0] * SLOTS
        self._sum = 0
        self._slot: int | None = None
        self._began = 0.0

    def add(self, rows: int, now: float) -> None:
        """Count rows that arrive."""
        slot = int(now * (SLOTS / WINDOW_S))
        if slot != self._slot:
            self._move(slot, now)
        self._slots[slot % SLOTS] += rows
        self._sum += rows

    def rate(self, now: float) -> float:
        """Rows/s; since the first arrival while that is less than 500 ms ago."""
        slot = int(now * (SLOTS / WINDOW_S))
        if slot != self._slot:
            self._move(slot, now)
        return self._sum / min(WINDOW_S, max(LEAST_S, now - self._began))

    def _move(self, slot: int, now: float) -> None:
        last = self._slot
        if last is None:
            self._began = now
        else:
            for past in range(last + 1, min(slot, last + SLOTS) + 1):
                self._sum -= self._slots[past % SLOTS]
                self._slots[past % SLOTS] = 0
        self._slot = slot
