"""Time slices on shared devices: revisit periods and the costs of slices.

A shared device runs its residents in time slices, and revisits each within the revisit period D. A query that just
missed a slice waits at most D and then runs in a batch of latency l, in time when D + l <= SLO. So period D admits
applications with SLO > D, with batches of l(b) <= min(D, SLO - D). The period holds by construction: the slices of all
residents, each with its maximum rows, add up to at most D. This bound counts whole rows (a slice cannot take half a
row); the fluid form sum(alpha/D + beta*z) <= rho follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .capacity import SliceCost, profile_on, slice_cost
from .groups import IdenticalDevices
from .problem import ApplicationDemand, CandidateVariant, LatencyProfile, Problem

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

    @property
    def most_rate(self) -> float:
        """items/s of one resident whose every slice has its maximum rows."""
        return self.cost.max_rows / self.revisit_s


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


def slice_options(
    problem: Problem,
    groups: list[IdenticalDevices],
    periods: list[float],
    keep: Callable[[int, float, str], bool] | None = None,
) -> list[SliceOption]:
    """Return every useful resident of shared devices.

    They are those of the applications with demand, by group and revisit period; none is dominated. A variant is
    dominated by another of its application, in the same group and revisit period, that is at least as accurate, costs
    no more at any number of rows, takes at least as many rows and no more memory; it stays where it is loaded.

    Args:
        keep: called with (group, revisit period, variant id), narrows the options.
    """
    applications = {a.id: a for a in problem.applications if a.demand > 0}
    options: list[SliceOption] = []
    costs: dict[tuple[int, float], SliceCost | None] = {}

    def cost_of(profile: LatencyProfile, limit_s: float) -> SliceCost | None:
        # Profiles are shared by all devices of a type, and fitting them dominates this function's cost.
        key = (id(profile), limit_s)
        if key not in costs:
            costs[key] = slice_cost(profile, limit_s)
        return costs[key]

    for g, group in enumerate(groups):
        loaded = frozenset().union(*(d.loaded for d in group.devices))
        for revisit_s in periods:
            mine: dict[str, list[SliceOption]] = {}
            for variant in problem.variants:
                if keep is not None and not keep(g, revisit_s, variant.id):
                    continue
                application = applications.get(variant.application)
                profile = profile_on(variant, group.one)
                if application is None or profile is None or application.slo_s <= revisit_s:
                    continue
                cost = cost_of(profile, min(revisit_s, application.slo_s - revisit_s))
                if cost is not None and cost.seconds(1) <= slice_budget_s(group, revisit_s):
                    mine.setdefault(application.id, []).append(
                        SliceOption(g, revisit_s, variant, cost, profile.memory_bytes)
                    )
            for rivals in mine.values():
                rivals.sort(key=lambda o: (-o.variant.accuracy, o.cost.seconds(1), o.cost.beta_s, o.memory_bytes))
                useful: list[SliceOption] = []
                for option in rivals:
                    if option.variant.id in loaded or not any(_dominates(other, option) for other in useful):
                        useful.append(option)
                options += useful
    return options


def _dominates(one: SliceOption, other: SliceOption) -> bool:
    return (
        one.variant.accuracy >= other.variant.accuracy
        and one.cost.seconds(1) <= other.cost.seconds(1)
        and one.cost.beta_s <= other.cost.beta_s
        and one.cost.max_rows >= other.cost.max_rows
        and one.memory_bytes <= other.memory_bytes
    )
