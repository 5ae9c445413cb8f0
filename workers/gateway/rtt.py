"""Round trip time to a device and back: a running high quantile. Pure."""

from __future__ import annotations

from collections import deque


class RttEstimator:
    """A high quantile of the round trip over the latest ``window`` queries.

    The executor's own work is left out.

    A sample is the core's round trip less the executor's queue and run times (seconds).

    Args:
        every: samples between two updates of the estimate.
        initial_s: estimate before the first update.
        longest_s: upper bound, so that outliers cannot hold up later queries.

    Attributes:
        seconds: the estimate.
    """

    def __init__(
        self,
        quantile: float = 0.99,
        window: int = 256,
        every: int = 16,
        initial_s: float = 0.002,
        longest_s: float = 0.2,
    ):
        self._quantile = quantile
        self._samples: deque[float] = deque(maxlen=window)
        self._window = window
        self._every = every
        self._new = 0
        self._longest_s = longest_s
        self.seconds = initial_s

    def begin(self, sample_s: float) -> None:
        """Add a sample, which raises the estimate at once if it is the first one.

        A device far away must not get queries that would come back late.
        """
        if not self._samples:
            self.seconds = min(self._longest_s, max(self.seconds, sample_s))
        self.add(sample_s)

    def add(self, sample_s: float) -> None:
        """Add a sample.

        Sorting is rare: every ``every`` samples, and four times a window once that is full.
        """
        samples = self._samples
        samples.append(sample_s if sample_s > 0.0 else 0.0)
        self._new += 1
        if self._new >= self._every and (4 * self._new >= self._window or len(samples) < self._window):
            self._new = 0
            ordered = sorted(samples)
            self.seconds = min(self._longest_s, ordered[int(self._quantile * (len(ordered) - 1))])
