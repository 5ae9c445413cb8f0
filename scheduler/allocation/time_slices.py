"""Device sharing's constants: which turn gaps there are, and what a turn of each variant costs in them.

A shared device serves its residents in turns, and no resident waits longer than the turn gap D between two of its
own. A query that just missed a turn waits D at most and then runs in a batch of latency l, in time when D + l <= SLO.
So class D admits applications with SLO > D, with batches of l(b) <= min(D, SLO - D). The gap holds by construction:
the turns of all residents, each with the most rows it may take, add up to at most D. That bound counts whole rows (a
turn cannot take half a row); the fluid form sum(alpha/D + beta*z) <= rho does not, and follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .capacity import TurnCost, profile_on, turn_cost
from .groups import Group
from .problem import Application, Problem, Profile, Variant

#: Turn gaps tried, as fractions of the SLOs.
FRACTIONS = (1 / 2, 2 / 3, 4 / 5)
MOST_GAPS = 8
#: Share of a shared device's available time that turns may fill: what lies between turns costs time too.
FILL = 0.95


@dataclass(frozen=True)
class TurnOption:
    """Variant ``variant`` resident on devices of group ``group`` with turn gap ``gap_s``."""

    group: int
    gap_s: float
    variant: Variant
    cost: TurnCost
    memory_bytes: int

    @property
    def most_rate(self) -> float:
        """items/s of one resident whose every turn is as large as it may be."""
        return self.cost.max_rows / self.gap_s


def turn_gaps(applications: list[Application]) -> list[float]:
    """At most eight turn gaps, seconds, ascending; the smallest one, which admits every application, among them."""
    gaps = sorted({round(a.slo_s * fraction, 6) for a in applications for fraction in FRACTIONS})
    if len(gaps) <= MOST_GAPS:
        return gaps
    return [gaps[round(i * (len(gaps) - 1) / (MOST_GAPS - 1))] for i in range(MOST_GAPS)]


def cycle_s(group: Group, gap_s: float) -> float:
    """Seconds of turns that may lie between two turns of a resident."""
    return FILL * group.one.available * gap_s


def turn_options(
    problem: Problem, groups: list[Group], gaps: list[float], keep: Callable[[int, float, str], bool] | None = None
) -> list[TurnOption]:
    """Every useful resident, by group and turn gap, of the applications with demand; dominated ones left away.

    A variant is dominated by another of its application, in the same group and class, that is at least as accurate,
    costs no more at any number of rows, takes at least as many rows and no more memory; it stays where it is loaded.
    ``keep(group, turn gap, variant id)`` narrows the options.
    """
    applications = {a.id: a for a in problem.applications if a.demand > 0}
    options: list[TurnOption] = []
    costs: dict[tuple[int, float], TurnCost | None] = {}

    def cost_of(profile: Profile, limit_s: float) -> TurnCost | None:
        # Profiles are shared by all devices of a type, and fitting them is the larger part of this function's work.
        key = (id(profile), limit_s)
        if key not in costs:
            costs[key] = turn_cost(profile, limit_s)
        return costs[key]

    for g, group in enumerate(groups):
        loaded = frozenset().union(*(d.loaded for d in group.devices))
        for gap_s in gaps:
            mine: dict[str, list[TurnOption]] = {}
            for variant in problem.variants:
                if keep is not None and not keep(g, gap_s, variant.id):
                    continue
                application = applications.get(variant.application)
                profile = profile_on(variant, group.one)
                if application is None or profile is None or application.slo_s <= gap_s:
                    continue
                cost = cost_of(profile, min(gap_s, application.slo_s - gap_s))
                if cost is not None and cost.seconds(1) <= cycle_s(group, gap_s):
                    mine.setdefault(application.id, []).append(
                        TurnOption(g, gap_s, variant, cost, profile.memory_bytes)
                    )
            for rivals in mine.values():
                rivals.sort(key=lambda o: (-o.variant.accuracy, o.cost.seconds(1), o.cost.beta_s, o.memory_bytes))
                useful: list[TurnOption] = []
                for option in rivals:
                    if option.variant.id in loaded or not any(_dominates(other, option) for other in useful):
                        useful.append(option)
                options += useful
    return options


def _dominates(one: TurnOption, other: TurnOption) -> bool:
    return (
        one.variant.accuracy >= other.variant.accuracy
        and one.cost.seconds(1) <= other.cost.seconds(1)
        and one.cost.beta_s <= other.cost.beta_s
        and one.cost.max_rows >= other.cost.max_rows
        and one.memory_bytes <= other.memory_bytes
    )
