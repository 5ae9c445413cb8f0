"""Estimates of interarrival times and arrival rates. Pure.

Interarrival times tell when the next query is to be expected.
"""

from __future__ import annotations

import math

from ..options import INF

#: weight of an arrival in the running mean
WEIGHT = 0.1
#: seconds; longer interarrival times count as this
LONGEST_S = 1.0
#: factor by which an arrival moves the median; squared with each further one on the same side, up to a largest step
STEP = 1.1
LARGEST_STEP, SMALLEST_STEP = STEP**8, 1.0 / STEP**8
#: seconds; the smallest median, since a shorter batching delay is none
SHORTEST_S = 0.001
#: seconds of the running mean of the rate: a compromise between its noise and how soon it follows a rise
RATE_S = 0.5
#: steps beyond which more simultaneous arrivals change nothing
MOST_STEPS = 10


class InterarrivalEstimator:
    """For bursts, the mean says when the next query is due, and the median whether."""

    def __init__(self) -> None:
        self.mean_s = 0.0
        self.median_s = SHORTEST_S
        self._last_at = INF
        self._step = 1.0

    def arrived(self, count: int, now: float) -> None:
        since_s = now - self._last_at
        if since_s > LONGEST_S:
            since_s = LONGEST_S
        elif since_s < 0.0:
            since_s = 0.0
        self._last_at = now
        self.mean_s += (WEIGHT * count if count < 10 else 1.0) * (since_s / count - self.mean_s)
        step, median_s = self._step, self.median_s
        for _ in range(count if count <= MOST_STEPS else MOST_STEPS + 1):
            if since_s > median_s:
                step = STEP if step <= 1.0 else step * step
                if step > LARGEST_STEP:
                    step = LARGEST_STEP
            else:
                step = 1.0 / STEP if step >= 1.0 else step * step
                if step < SMALLEST_STEP:
                    step = SMALLEST_STEP
            median_s *= step
            if median_s < SHORTEST_S:
                median_s = SHORTEST_S
            since_s = 0.0
        self._step, self.median_s = step, median_s


class ArrivalRate:
    """``value``: rows/s as of the latest measurement; ``rows``: that arrived since."""

    def __init__(self) -> None:
        self.value = 0.0
        self.rows = 0
        self._measured_at = -INF

    def measure(self, now: float) -> None:
        """The first rows set the mean, since they are all that is known."""
        since_s = now - self._measured_at
        if since_s <= 0.0:
            return
        if since_s < INF:
            weight = 1.0 - math.exp(-since_s / RATE_S) if self.value else 1.0
            self.value += weight * (self.rows / since_s - self.value)
        self.rows, self._measured_at = 0, now
