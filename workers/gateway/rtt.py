"""How much of a query's time the way to a device and back takes: a running high quantile. Pure."""

from __future__ import annotations

from collections import deque


class RttEstimator:
    """A high quantile of the time around the executor's own work, over the latest ``window`` queries.

    A sample is the gateway's round trip less the executor's queue and run times (seconds). Until enough is known the
    margin is ``initial_s``; ``longest_s`` bounds what a moment of trouble may cost later queries.
    """

    def __init__(
        self,
        quantile: float = 0.99,
        window: int = 256,
        every: int = 16,
        initial_s: float = 0.002,
        longest_s: float = 0.05,
    ):
        self._quantile = quantile
        self._samples: deque[float] = deque(maxlen=window)
        self._window = window
        self._every = every
        self._new = 0
        self._longest_s = longest_s
        self.seconds = initial_s

    def add(self, sample_s: float) -> None:
        """Take in one round trip; the quantile is renewed once in ``every`` samples, and four times a window once that
        is full, so that this costs nothing."""
        samples = self._samples
        samples.append(sample_s if sample_s > 0.0 else 0.0)
        self._new += 1
        if self._new >= self._every and (4 * self._new >= self._window or len(samples) < self._window):
            self._new = 0
            ordered = sorted(samples)
            self.seconds = min(self._longest_s, ordered[int(self._quantile * (len(ordered) - 1))])
