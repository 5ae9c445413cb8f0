"""Rates of the demo's load as pure functions of time: a wave and bursts.

The slow wave swings around what the most accurate variant can carry; sudden bursts go far above it, yet stay within
what the least accurate one can. So accuracy must give way in each burst, and punctuality need not.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

#: the wave's bounds, in parts of what the most accurate variant carries
WAVE_LOW, WAVE_HIGH = 0.4, 1.2
WAVE_PERIOD_S = 180.0
#: a burst's height, and the most that is ever sent, in parts of what the least accurate variant carries. The rest is
#: for the gateway, the load itself and everything else that runs on the same cores.
BURST_LOW, BURST_HIGH = 0.5, 0.65
LIMIT = 0.7
#: one burst begins in each cycle, at most BURST_JITTER_S after the cycle does: two begin less than a minute apart
CYCLE_S = 54.0
BURST_JITTER_S = 5.0
BURST_SHORTEST_S, BURST_LONGEST_S = 8.0, 12.0


@dataclass(frozen=True)
class LoadCapacity:
    """What an application's share of the devices carries by its most or least accurate variant, queries/s."""

    most_accurate: float
    least_accurate: float


@dataclass(frozen=True)
class LoadBurst:
    """From ``begin`` to ``end`` (s since the start); ``height``: the least rate.

    In multiples of the least accurate variant's capacity.
    """

    begin: float
    end: float
    height: float


@dataclass(frozen=True)
class RateProfile:
    """One application's rate over time; ``phase``: 0 to 1 of the cycle."""

    capacity: LoadCapacity
    seed: int = 0
    phase: float = 0.0

    def burst(self, cycle: int) -> LoadBurst:
        """The burst that begins in a cycle; the same for the same seed."""
        return _burst(self.seed, self.phase, cycle)

    def bursting(self, t: float) -> LoadBurst | None:
        """The burst in which ``t`` (s since the start) lies; it ends before its cycle."""
        burst = self.burst(math.floor(t / CYCLE_S - self.phase))
        return burst if burst.begin <= t < burst.end else None

    def rate(self, t: float) -> float:
        """Queries/s at ``t`` seconds since the start; the wave begins at its low."""
        middle, swing = (WAVE_HIGH + WAVE_LOW) / 2, (WAVE_HIGH - WAVE_LOW) / 2
        wave = middle - swing * math.cos(2 * math.pi * (t / WAVE_PERIOD_S + self.phase))
        queries = wave * self.capacity.most_accurate
        burst = self.bursting(t)
        if burst is not None:
            queries = max(queries, burst.height * self.capacity.least_accurate)
        return min(queries, self.limit)

    @property
    def limit(self) -> float:
        """Never exceeded (queries/s)."""
        return LIMIT * self.capacity.least_accurate


@functools.lru_cache(maxsize=64)  # asked for at every arrival, and seeding a generator is slow
def _burst(seed: int, phase: float, cycle: int) -> LoadBurst:
    chance = random.Random(f"{seed}:{cycle}")
    begin = (cycle + phase) * CYCLE_S + chance.uniform(0, BURST_JITTER_S)
    length = chance.uniform(BURST_SHORTEST_S, BURST_LONGEST_S)
    return LoadBurst(begin, begin + length, chance.uniform(BURST_LOW, BURST_HIGH))


def arrivals(profile: RateProfile, chance: random.Random, begin: float = 0.0) -> Iterator[float]:
    """Times (s, ascending, endless) of a Poisson process with ``profile.rate``.

    By thinning: Lewis and Shedler, "Simulation of nonhomogeneous Poisson processes by thinning", 1979, Algorithm 1.
    """
    t = begin
    while True:
        t += chance.expovariate(profile.limit)
        if chance.random() * profile.limit < profile.rate(t):
            yield t
