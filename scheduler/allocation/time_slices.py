"""Time slices on shared devices: revisit periods and the costs of slices.

A shared device runs its residents in time slices, and revisits each within the revisit period D. A query that just
missed a slice waits at most D and then runs in a batch of latency l, in time when D + l <= SLO. So period D admits
applications with SLO > D, with batches of l(b) <= min(D, SLO - D). The period holds by construction: the slices of all
residents, each with its maximum rows, add up to at most D. This bound counts whole rows (a slice cannot take half a
row); the fluid form sum(alpha/D + beta*z) <= rho follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .capacity import SliceCost, profile_on, slice_cost
from .groups import IdenticalDevices
from .problem import ApplicationDemand, CandidateVariant, Problem

#: Revisit periods tried, as fractions of the SLOs.
FRACTIONS = (1 / 2, 2 / 3, 4 / 5)
#: Largest number of revisit periods tried.
MAX_PERIODS = 8
#: Share of a shared device's available time that slices may fill; the rest is overhead between slices.
FILL = 0.95


@dataclass(frozen=True)
class SliceOption:
    """A variant resident on devices of a group with one revisit period.

    Attributes:
        group: its index.
        revisit_s: the revisit period, seconds.
        cost: of the variant's slices.
    """

    group: int
    revisit_s: float
    variant: CandidateVariant
    cost: SliceCost
    memory_bytes: int


def revisit_periods(applications: list[ApplicationDemand]) -> list[float]:
    """Return the revisit periods to try, seconds, ascending.

    There are at most :data:`MAX_PERIODS`; the smallest admits every application.
    """
    periods = sorted({round(a.slo_s * fraction, 6) for a in applications for fraction in FRACTIONS})
    if len(periods) <= MAX_PERIODS:
        return periods
    return [periods[round(i * (len(periods) - 1) / (MAX_PERIODS - 1))] for i in range(MAX_PERIODS)]


def slice_budget_s(group: IdenticalDevices, revisit_s: float) -> float:
    """Slice budget: seconds that all slices may take in one revisit period."""
    return FILL * group.one.available * revisit_s


def slice_options(problem: Problem, groups: list[IdenticalDevices], revisit_s: float) -> list[SliceOption]:
    """Return every possible resident of shared devices with this revisit period.

    They are those of the applications with demand.
    """
    slo_s = {a.id: a.slo_s for a in problem.applications if a.demand > 0}
    options: list[SliceOption] = []
    for g, group in enumerate(groups):
        for variant in problem.variants:
            profile, slo = profile_on(variant, group.one), slo_s.get(variant.application, 0.0)
            if profile is None or slo <= revisit_s:
                continue
            cost = slice_cost(profile, min(revisit_s, slo - revisit_s))
            if cost is not None and cost.seconds(1) <= slice_budget_s(group, revisit_s):
                options.append(SliceOption(g, revisit_s, variant, cost, profile.memory_bytes))
    return options
