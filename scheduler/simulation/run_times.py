"""Run times of simulated batches, spread around their profiles or drawn from measurements."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from .scenario import Scenario
from .tables import ScenarioError


class RunTimes:
    """Draws run times; the same draws for the same seed.

    Args:
        ratios: by variant id: run times over the profile's that are equally likely, as measured somewhere.
        spread: of the variants that ``ratios`` leaves out: standard deviation of the run time's logarithm, with the
            profile as median.

    Raises:
        ScenarioError: a variant has no ratios, or one that is not above 0 and finite.
    """

    def __init__(self, seed: int, spread: float, ratios: Mapping[str, Sequence[float]]):
        faults = [
            f"run_ratios.{variant}: must be one or more numbers above 0"
            for variant, measured in ratios.items()
            if not measured or not all(0 < ratio < math.inf for ratio in measured)
        ]
        if faults:
            raise ScenarioError(faults)
        self._random = random.Random(f"{seed}:noise")
        self._spread = spread
        self._ratios = {variant: tuple(measured) for variant, measured in ratios.items()}

    @classmethod
    def of(cls, scenario: Scenario) -> RunTimes | None:
        """None: every batch takes exactly its profiled time."""
        if not scenario.profile_noise and not scenario.run_ratios:
            return None
        return cls(scenario.seed, scenario.profile_noise, scenario.run_ratios)

    def draw(self, variant: str, profiled_s: float) -> float:
        """Seconds that a batch takes which takes ``profiled_s`` by its profile."""
        ratios = self._ratios.get(variant)
        if ratios is not None:
            return profiled_s * self._random.choice(ratios)
        return profiled_s * self._random.lognormvariate(0.0, self._spread) if self._spread else profiled_s
