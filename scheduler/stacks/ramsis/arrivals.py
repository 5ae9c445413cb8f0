"""Arrivals at one worker: how many queries reach it in a time. Pure.

This depends on the law of all arrivals and on the load balancing. Round robin gives a worker every K-th query, so the
queries since its last one, its *phase* (0 to K - 1), belong to its state. Shortest queue first gives it a Poisson
stream of its own, whose rate depends on its queue (Appendix I.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

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
        mean = self.rate * seconds
        # By Bernstein's inequality: counts far above a small mean become less likely by a factor each, not a square.
        return int(mean + TAIL * math.sqrt(mean / self.shape) + TAIL * TAIL / 2 / self.shape) + 1

    def logs(self, most: int, seconds: np.ndarray) -> np.ndarray:
        """Logs of the probabilities of 0 to ``most``, by each of ``seconds`` (above 0)."""
        mean = self.rate * np.asarray(seconds, float)[:, None]
        number = np.arange(most + 1)
        if self.shape == 1.0:
            return number * np.log(mean) - mean - log_factorials(most)
        # The variance is mean / shape = mean / p of a negative binomial law with size r and success probability p.
        size = mean * self.shape / (1 - self.shape)
        rising = np.zeros((len(size), most + 1))
        np.cumsum(np.log(size + number[:-1]), axis=1, out=rising[:, 1:])
        return rising - log_factorials(most) + size * math.log(self.shape) + number * math.log1p(-self.shape)

    def probabilities(self, most: int, seconds: np.ndarray) -> np.ndarray:
        """Probabilities of 0 to ``most``, by each of ``seconds`` (at least 0)."""
        made = np.zeros((len(seconds), most + 1))
        made[:, 0] = 1.0
        later = seconds > 0
        made[later] = np.exp(self.logs(most, seconds[later]))
        return made


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
        return self.counts[0].rate / self.phases

    def group(self, queued: int) -> int:
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
    """Return the stream of a worker where queries join the shortest queue.

    It is approximated as a Poisson stream by queue length (Appendix I.1).

    Args:
        service_rate: items/s of the worker on the model that meets the load. The paper puts a latency there, where the
            source of its formula has a rate.
    """
    usual = rate / workers
    busy = min(1.0, usual / service_rate)
    return Stream((Counts(usual), Counts(max(busy**workers * service_rate, 1e-9 * usual))), 1, LONG_QUEUE)


def log_factorials(most: int) -> np.ndarray:
    size = 1 << max(10, most.bit_length())
    return _log_factorials(size)[: most + 1]


@lru_cache(maxsize=16)
def _log_factorials(size: int) -> np.ndarray:
    return np.cumsum(np.log(np.maximum(np.arange(size), 1)))
