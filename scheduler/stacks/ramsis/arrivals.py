"""Arrivals at one worker: how many queries reach it in a time. Pure.

Arrivals are Poisson, and dealt out round robin: a worker gets every K-th query, so that the queries since its last one,
its *phase* (0 to K - 1), belong to its state.
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


@dataclass(frozen=True)
class Stream:
    """The arrivals that are dealt out, of which one worker gets one in ``phases``.

    Attributes:
        rate: mean items/s that are dealt out, above 0.
    """

    rate: float
    phases: int = 1

    def most(self, seconds: float) -> int:
        mean = self.rate * seconds
        # By Bernstein's inequality: counts far above a small mean become less likely by a factor each, not a square.
        return int(mean + TAIL * math.sqrt(mean) + TAIL * TAIL / 2) + 1

    def logs(self, most: int, seconds: np.ndarray) -> np.ndarray:
        """Logs of the probabilities of 0 to ``most``, by each of ``seconds`` (above 0)."""
        mean = self.rate * np.asarray(seconds, float)[:, None]
        return np.arange(most + 1) * np.log(mean) - mean - log_factorials(most)

    def probabilities(self, most: int, seconds: np.ndarray) -> np.ndarray:
        """Probabilities of 0 to ``most``, by each of ``seconds`` (at least 0)."""
        made = np.zeros((len(seconds), most + 1))
        made[:, 0] = 1.0
        later = seconds > 0
        made[later] = np.exp(self.logs(most, seconds[later]))
        return made


def round_robin(rate: float, workers: float) -> Stream:
    """Every ``workers``-th query of a stream of ``rate`` items/s.

    Args:
        workers: the inverse of the worker's share; where it is no whole number, or more than ``MOST_PHASES``, the
            nearest smaller count is taken at the same rate of the worker.
    """
    phases = max(1, min(int(workers), MOST_PHASES))
    return Stream(rate * phases / workers, phases)


def log_factorials(most: int) -> np.ndarray:
    size = 1 << max(10, most.bit_length())
    return _log_factorials(size)[: most + 1]


@lru_cache(maxsize=16)
def _log_factorials(size: int) -> np.ndarray:
    return np.cumsum(np.log(np.maximum(np.arange(size), 1)))
