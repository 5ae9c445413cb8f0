"""A limit of a rate that lets bursts through. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TokenBucket:
    """Tokens: ``burst`` at first and at most, then ``per_second`` more each second."""

    burst: float
    per_second: float

    def __post_init__(self) -> None:
        self._left, self._at = self.burst, None

    def _refill(self, now: float) -> None:
        if self._at is not None:
            self._left = min(self.burst, self._left + (now - self._at) * self.per_second)
        self._at = now

    def takes(self, now: float) -> bool:
        self._refill(now)
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def wait(self, cost: float, now: float) -> float:
        """Take ``cost``; seconds until it is there."""
        self._refill(now)
        self._left -= cost
        return max(0.0, -self._left / self.per_second)
