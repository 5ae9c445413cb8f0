"""Run times of simulated batches, where they are not what profiles say."""

from __future__ import annotations

import random

from .scenario import Scenario


class RunTimes:
    """Draws run times as the scenario says; the same draws for the same seed.

    Variants of ``run_ratios`` have no other noise.
    """

    def __init__(self, scenario: Scenario):
        self._seed = scenario.seed
        self._random = random.Random(f"{scenario.seed}:noise")
        self._spread = scenario.profile_noise
        self._ratios = {variant: tuple(measured) for variant, measured in scenario.run_ratios.items()}
        self._error = scenario.profile_error
        self._factors: dict[tuple[str, str], float] = {}
        self._stalls = random.Random(f"{scenario.seed}:stalls")
        self._stall_s, self._stall_share = scenario.stall_s, 1.0 / scenario.stall_every

    @classmethod
    def of(cls, scenario: Scenario) -> RunTimes | None:
        if not (scenario.profile_noise or scenario.run_ratios or scenario.profile_error or scenario.stall_s):
            return None
        return cls(scenario)

    def draw(self, variant: str, kind: str, profiled_s: float) -> float:
        """Seconds that a batch takes, whose profile says ``profiled_s``."""
        seconds = profiled_s * self.factor(variant, kind) if self._error else profiled_s
        ratios = self._ratios.get(variant)
        if ratios is not None:
            seconds *= self._random.choice(ratios)
        elif self._spread:
            # The profile is the median.
            seconds *= self._random.lognormvariate(0.0, self._spread)
        if self._stall_s and self._stalls.random() < self._stall_share:
            seconds += self._stall_s
        return seconds

    def factor(self, variant: str, kind: str) -> float:
        factor = self._factors.get((variant, kind))
        if factor is None:
            own = random.Random(f"{self._seed}:profile error:{variant}:{kind}")
            factor = self._factors[variant, kind] = own.uniform(1.0 - self._error, 1.0 + self._error)
        return factor
