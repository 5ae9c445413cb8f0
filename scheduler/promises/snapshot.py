"""The demand, the cluster and the arrivals that a what-if is asked for.

Both of its plans and both of its simulations are for this one snapshot, and by fixed work in place of time limits. So
the same question about the same snapshot has the same answer, and the two differ by the imagined changes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.utils import timezone

from registry import clock
from scheduler.allocation.problem import Allocation, Problem
from scheduler.control import choices, planner
from scheduler.promises import present
from scheduler.promises.changes import Changes, imagined
from scheduler.promises.recorded import Recorded
from scheduler.promises.recorded import imagined as imagined_record
from scheduler.promises.windows import SOLVE_S, World


@dataclass(frozen=True)
class Snapshot:
    """The state of the cluster at a question.

    Attributes:
        measured: when, as an ISO time.
        problem: with the plan in force as ``previous``.
        recorded: arrivals.
    """

    measured: str
    stack: str
    problem: Problem
    recorded: Recorded

    @classmethod
    def take(cls) -> Snapshot:
        stack = choices.current().name
        problem, _ = planner.present_problem()
        recorded = present.recorded([a.id for a in problem.applications])
        problem = replace(
            problem, previous=planner.in_force(stack), at_s=clock.steady(), time_limit_s=SOLVE_S, milp_s=None
        )
        return cls(timezone.now().isoformat(), stack, problem, imagined_record(recorded, {}))

    def arrivals(self, changes: Changes) -> tuple[Recorded, dict[str, float]]:
        rates = {a.id: self.recorded.rate(a.id) for a in self.problem.applications}
        silent = {name: rate for name, rate in changes.demand.items() if not rates.get(name)}
        factors = {name: changes.factor(name, rate) if rate else 1.0 for name, rate in rates.items()}
        return imagined_record(self.recorded, silent), factors

    def imagined(self, changes: Changes) -> Problem:
        """The problem with the changes.

        A factor multiplies the estimates. Demand that is given in items/s is estimated from arrivals of that rate, as
        plans are made for.
        """
        demand = {a.id: a.demand * changes.demand_factor for a in self.problem.applications}
        expected = {a.id: a.expected * changes.demand_factor for a in self.problem.applications}
        if changes.demand:
            record, factors = self.arrivals(changes)
            planned, mean = planner.estimated(record.history(factors), list(changes.demand), 0)
            demand |= {name: rate * settings.NEREUS.headroom for name, rate in planned.items()}
            expected |= mean
        problem = imagined(self.problem, changes, demand, expected)
        return replace(problem, previous=_kept(problem.previous, {device.id for device in problem.devices}))

    def now(self, allocation: Allocation) -> World:
        return present.world(self.stack, self.problem, allocation, self.recorded, {})

    def base(self) -> dict[str, Any]:
        return {
            "measured": self.measured,
            "seconds": self.recorded.seconds,
            "items_per_s": {a.id: self.recorded.rate(a.id) for a in self.problem.applications},
        }


def _kept(previous: Allocation | None, devices: set[str]) -> Allocation | None:
    if previous is None:
        return None

    def there(by_device: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in by_device.items() if name in devices}

    return replace(
        previous,
        placements=tuple(p for p in previous.placements if p.device in devices),
        residents=there(previous.residents),
        revisit_s=there(previous.revisit_s),
    )
