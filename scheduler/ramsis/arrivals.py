"""Arrivals at one worker: how many queries reach it in a time, by the law of all arrivals and the load balancing. Pure.

Round robin gives a worker every K-th query, so the queries since its last one, its *phase* (0 to K - 1), belong to its
state. Shortest queue first gives it a Poisson stream of its own, whose rate depends on its queue (Appendix I.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: most phases of a worker; with more workers the stream is a little less even than it is, which is the safe side
MOST_PHASES = 128
#: standard deviations beyond which counts are taken for impossible
TAIL = 9.0
#: queue length from which shortest queue first sends a worker fewer queries (Appendix I.1)
LONG_QUEUE = 3


@dataclass(frozen=True)
class Counts:
    """A law of counts with independent and stationary increments (Section 4.4.2).

    Attributes:
        rate: mean items/s.
        shape: 1: Poisson. Below 1: counts of a process whose interarrival times are Gamma with this shape, by the
            process with independent increments that has the same mean and the same long-run variance, ``1 / shape``
            times the mean (negative binomial counts).
    """

    rate: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.rate < math.inf and 0 < self.shape <= 1):
            raise ValueError(f"counts: rate must be above 0 and shape above 0 and at most 1, not {self}")

    def most(self, seconds: float) -> int:
        """A count that is never exceeded in ``seconds``, but for a negligible chance."""
        mean = self.rate * seconds
        spread = math.sqrt(mean / self.shape)
        return int(mean + TAIL * spread + TAIL * TAIL / self.shape) + 1

    def log(self, counts: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """Log of the probability of ``counts`` in ``seconds`` (above 0); the arrays are broadcast."""
        mean = self.rate * np.asarray(seconds, float)
        counts = np.asarray(counts, float)
        if self.shape == 1.0:
            return counts * np.log(mean) - mean - log_gamma(counts + 1)
        # The variance is mean / shape = mean / p of a negative binomial law with size r and success probability p.
        size = mean * self.shape / (1 - self.shape)
        logs = log_gamma(counts + size) - log_gamma(size) - log_gamma(counts + 1)
        return logs + size * math.log(self.shape) + counts * math.log1p(-self.shape)

    def probabilities(self, most: int, seconds: float) -> np.ndarray:
        """Of 0 to ``most`` arrivals in ``seconds`` (at least 0)."""
        if seconds <= 0:
            return np.eye(1, most + 1)[0]
        return np.exp(self.log(np.arange(most + 1), np.float64(seconds)))


@dataclass(frozen=True)
class Stream:
    """The arrivals at one worker.

    Attributes:
        counts: of the arrivals that are dealt out, by class of queue length.
        phases: arrivals that are dealt out for each one that the worker gets.
        long: shortest queues of the second class; 0: there is one class.
    """

    counts: tuple[Counts, ...]
    phases: int = 1
    long: int = 0

    @property
    def rate(self) -> float:
        """Items/s of the worker, over time."""
        return self.counts[0].rate / self.phases

    def group(self, queued: int) -> int:
        """The class of a queue length when a batch starts."""
        return int(bool(self.long) and queued >= self.long)


def round_robin(rate: float, workers: float, shape: float = 1.0) -> Stream:
    """Every ``workers``-th query of a stream of ``rate`` items/s.

    Args:
        workers: the inverse of the worker's share; where it is no whole number, or more than ``MOST_PHASES``, the
            nearest smaller count is taken at the same rate of the worker.
    """
    phases = max(1, min(int(workers), MOST_PHASES))
    return Stream((Counts(rate * phases / workers, shape),), phases)


def shortest_queue(rate: float, workers: float, service_rate: float) -> Stream:
    """Join the shortest queue, approximated as a Poisson stream by queue length (Appendix I.1).

    Args:
        service_rate: items/s of the worker on the model that meets the load. The paper puts a latency there, where the
            source of its formula has a rate.
    """
    usual = rate / workers
    busy = min(1.0, usual / service_rate)
    return Stream((Counts(usual), Counts(max(busy**workers * service_rate, 1e-9 * usual))), 1, LONG_QUEUE)


def log_gamma(values: np.ndarray) -> np.ndarray:
    """Log of the gamma function for values above 0, by Stirling's series above 8 (relative error below 1e-12)."""
    x = np.array(values, float)
    shift = np.zeros_like(x)
    for _ in range(8):
        small = x < 8
        if not small.any():
            break
        shift = shift + np.where(small, np.log(np.where(small, x, 1.0)), 0.0)
        x = np.where(small, x + 1, x)
    inverse = 1 / x
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))
    return (x - 0.5) * np.log(x) - x + 0.5 * math.log(2 * math.pi) + series - shift
