"""Run times of an appliance's batches, from its node's metrics.

They are in buckets, by variant.

A log-normal distribution of run times over profiled ones is fitted to the buckets (maximum likelihood of grouped data)
with the mean that the sums tell exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from prometheus_client.parser import text_string_to_metric_families

METRIC = "nereus_executor_run_seconds"
#: standard deviations of the logarithm that are tried
SIGMAS = [step / 100 for step in range(1, 121)]
#: equally likely values that stand for a distribution
VALUES = 99
_NORMAL = NormalDist()


@dataclass(frozen=True)
class RunTimes:
    """Run times of a variant's batches on all devices.

    Attributes:
        counts: batches by upper bound (s) of their run time, each without those below.
        sum_s: of all run times.
    """

    counts: Mapping[float, float]
    sum_s: float

    @property
    def batches(self) -> float:
        return sum(self.counts.values())

    def since(self, earlier: RunTimes | None) -> RunTimes:
        """Those after ``earlier`` was read."""
        if earlier is None:
            return self
        counts = {bound: count - earlier.counts.get(bound, 0.0) for bound, count in self.counts.items()}
        return RunTimes(counts, self.sum_s - earlier.sum_s)


def read(page: str) -> dict[str, RunTimes]:
    """Run times by variant's name from a page of metrics."""
    below: dict[str, dict[float, float]] = {}
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        if family.name != METRIC:
            continue
        for sample in family.samples:
            variant = sample.labels["variant"]
            if sample.name.endswith("_bucket"):
                bounds = below.setdefault(variant, {})
                bound = float(sample.labels["le"])
                bounds[bound] = bounds.get(bound, 0.0) + sample.value
            elif sample.name.endswith("_sum"):
                sums[variant] = sums.get(variant, 0.0) + sample.value
    found = {}
    for variant, bounds in below.items():
        counts, before = {}, 0.0
        for bound in sorted(bounds):
            counts[bound], before = bounds[bound] - before, bounds[bound]
        found[variant] = RunTimes(counts, sums.get(variant, 0.0))
    return found


def ratios(profiled: Sequence[tuple[float, float]], took: RunTimes) -> tuple[float, ...]:
    """Return a distribution of run times over profiled ones.

    It has :data:`VALUES` values that are equally likely, ascending, with the mean that was observed.

    Args:
        profiled: (seconds by the profile, batches), one pair for each batch size that ran.

    Raises:
        ValueError: nothing ran.
    """
    expected_s = sum(seconds * batches for seconds, batches in profiled)
    if not expected_s or took.batches <= 0:
        raise ValueError("profiled: no batch ran")
    mean = took.sum_s / expected_s
    sigma = max(SIGMAS, key=lambda sigma: _likelihood(profiled, took, mean, sigma))
    values = [math.exp(sigma * _NORMAL.inv_cdf((i + 0.5) / VALUES)) for i in range(VALUES)]
    scale = mean / fmean(values)
    return tuple(value * scale for value in values)


def _likelihood(profiled: Sequence[tuple[float, float]], took: RunTimes, mean: float, sigma: float) -> float:
    """The logarithm of the probability of these counts, up to a constant."""
    location = math.log(mean) - sigma**2 / 2
    all_batches = sum(batches for _, batches in profiled)

    def below(bound: float) -> float:
        if bound == math.inf:
            return 1.0
        return sum(
            batches / all_batches * _NORMAL.cdf((math.log(bound / seconds) - location) / sigma)
            for seconds, batches in profiled
        )

    total, before = 0.0, 0.0
    for bound in sorted(took.counts):
        until = below(bound)
        if took.counts[bound] > 0:
            total += took.counts[bound] * math.log(max(until - before, 1e-6))
        before = until
    return total
