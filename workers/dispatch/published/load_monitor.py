"""Loads as moving averages. Pure."""

from __future__ import annotations

#: seconds of the average, its slots, and the least time that the first average is taken over
WINDOW_S, SLOTS, LEAST_S = 0.5, 50, 0.1


class LoadMonitor:
    """Rows/s of the last 500 ms (RAMSIS, Section 6), or of another window. Time must not go back."""

    __slots__ = ("_began", "_least_s", "_slot", "_slots", "_sum", "_window_s")

    def __init__(self, window_s: float = WINDOW_S, least_s: float = LEAST_S) -> None:
        self._window_s, self._least_s = window_s, least_s
        self._slots = [0.0] * SLOTS
        self._sum = 0.0
        self._slot: int | None = None
        self._began = 0.0

    def add(self, rows: float, now: float) -> None:
        slot = int(now * (SLOTS / self._window_s))
        if slot != self._slot:
            self._move(slot, now)
        self._slots[slot % SLOTS] += rows
        self._sum += rows

    def rate(self, now: float) -> float:
        """Rows/s; since the first arrival while that is within the window."""
        slot = int(now * (SLOTS / self._window_s))
        if slot != self._slot:
            self._move(slot, now)
        return self._sum / min(self._window_s, max(self._least_s, now - self._began))

    def _move(self, slot: int, now: float) -> None:
        last = self._slot
        if last is None:
            self._began = now
        else:
            for past in range(last + 1, min(slot, last + SLOTS) + 1):
                self._sum -= self._slots[past % SLOTS]
                self._slots[past % SLOTS] = 0
        self._slot = slot
