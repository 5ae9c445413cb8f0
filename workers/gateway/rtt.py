"""Round trip time to a device and back: a running high quantile. Pure."""

from __future__ import annotations

from collections import deque

#: samples in the window, and between two updates of the estimate
WINDOW, EVERY = 256, 16
QUANTILE = 0.99
#: the estimate before its first update, and at most, so that outliers cannot hold up later queries
INITIAL_S, LONGEST_S = 0.002, 0.2


class RttEstimator:
    """A high quantile of the round trip over the latest :data:`WINDOW` queries.

    The executor's own work is left out.

    A sample is the core's round trip less the executor's queue and run times (seconds).

    Attributes:
        seconds: the estimate.
    """

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=WINDOW)
        self._new = 0
        self.seconds = INITIAL_S

    def begin(self, sample_s: float) -> None:
        """Add a sample, which raises the estimate at once if it is the first one.

        A device far away must not get queries that would come back late.
        """
        if not self._samples:
            self.seconds = min(LONGEST_S, max(self.seconds, sample_s))
        self.add(sample_s)

    def add(self, sample_s: float) -> None:
        """Add a sample.

        Sorting is rare: every :data:`EVERY` samples, and four times a window once that is full.
        """
        samples = self._samples
        samples.append(sample_s if sample_s > 0.0 else 0.0)
        self._new += 1
        if self._new >= EVERY and (4 * self._new >= WINDOW or len(samples) < WINDOW):
            self._new = 0
            ordered = sorted(samples)
            self.seconds = min(LONGEST_S, ordered[int(QUANTILE * (len(ordered) - 1))])
