"""The plan in force, arrivals, the check index, and the snapshot of a question."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from django.conf import settings
from django.db.models import F
from django.utils import timezone

from registry import clock
from registry.models import Application, Profile, ProfileLatency, Variant
from scheduler import telemetry
from scheduler.allocation.problem import Allocation, Problem
from scheduler.control import choices, planner
from scheduler.control.assemble import available_devices
from scheduler.models import Plan
from scheduler.simulation.scenario import ControlSettings

from .changes import Changes, imagined
from .recorded import LEAST_S, RECORD_S, Recorded, record
from .recorded import imagined as imagined_record
from .windows import SOLVE_S, NothingToPromise, World


def check_index() -> str:
    """Name the state that plans depend on, without demand and loaded variants."""
    facts = [
        choices.current().name,
        list(
            Application.objects.order_by("pk").values_list("pk", "name", "slo_ms", "weight", "floor", "late", "state")
        ),
        list(Variant.objects.order_by("pk").values_list("pk", "state", "accuracy", "pinned", "excluded")),
        list(Profile.objects.order_by("pk").values_list("pk", "variant", "device_type", "measured", "blocked")),
        sorted((device.ref, device.type, device.memory_bytes) for device in available_devices()),
    ]
    return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()


def recorded(applications: list[str]) -> Recorded:
    entries = telemetry.gateway_seconds(RECORD_S + 1)
    queries, rows = (telemetry.sum_arrivals(entries, field) for field in ("arrived", "arrived_rows"))
    items = dict(rows)
    seconds = [
        (t, {name: (count, items.get(t, {}).get(name, 0.0)) for name, count in counts.items()})
        for t, counts in queries[:-1]
    ]
    return record(seconds, applications)


def medians() -> dict[str, float]:
    ratios: dict[int, list[float]] = {}
    measured = ProfileLatency.objects.filter(p95_ms__gt=0, p50_ms__gt=0)
    for variant, p50, p95 in measured.values_list(F("profile__variant"), "p50_ms", "p95_ms"):
        ratios.setdefault(variant, []).append(min(1.0, p50 / p95))
    return {str(variant): statistics.fmean(some) for variant, some in ratios.items()}


def world(
    stack: str, problem: Problem, allocation: Allocation, arrived: Recorded, factors: Mapping[str, float]
) -> World:
    control = ControlSettings(period_s=settings.NEREUS.plan_period_s, solve_s=SOLVE_S)
    quantile = settings.NEREUS.demand_quantile
    return World(stack, problem, allocation, arrived, factors, medians(), control, quantile)


def in_force() -> tuple[Plan, Problem, Allocation]:
    """The plan in force; NothingToPromise: none, or an older release's."""
    plan = Plan.objects.first()
    if plan is None:
        raise NothingToPromise("No plan was made yet.")
    try:
        problem = msgspec.convert(plan.problem, Problem)
        return plan, replace(problem, previous=None), msgspec.convert(plan.whole_allocation, Allocation)
    except msgspec.ValidationError as error:
        raise NothingToPromise(f"Plan {plan.pk} cannot be read: {error}") from None


def present_world() -> tuple[Plan, World]:
    plan, problem, allocation = in_force()
    arrived = recorded([a.id for a in problem.applications])
    if arrived.seconds < LEAST_S:
        raise NothingToPromise(f"{arrived.seconds} s of arrivals are recorded, and {LEAST_S} s are needed.")
    return plan, world(plan.stack, problem, allocation, arrived, {})


@dataclass(frozen=True)
class Snapshot:
    """The demand, the cluster and the arrivals at a question.

    Both plans and both simulations of a what-if are for one snapshot, and end by their work, not by time: the same
    question about the same snapshot has the same answer. ``measured`` is an ISO time; the problem has the plan in force
    as ``previous``.
    """

    measured: str
    stack: str
    problem: Problem
    recorded: Recorded

    @classmethod
    def take(cls) -> Snapshot:
        stack = choices.current().name
        problem, _ = planner.present_problem()
        arrived = recorded([a.id for a in problem.applications])
        previous = planner.in_force(stack, Plan.objects.only("stack", "allocation").first())
        problem = replace(problem, previous=previous, at_s=clock.steady(), time_limit_s=SOLVE_S, milp_s=None)
        return cls(timezone.now().isoformat(), stack, problem, imagined_record(arrived, {}))

    def arrivals(self, changes: Changes) -> tuple[Recorded, dict[str, float]]:
        rates = {a.id: self.recorded.rate(a.id) for a in self.problem.applications}
        silent = {name: rate for name, rate in changes.demand.items() if not rates.get(name)}
        factors = {name: changes.factor(name, rate) if rate else 1.0 for name, rate in rates.items()}
        return imagined_record(self.recorded, silent), factors

    def imagined(self, changes: Changes) -> Problem:
        """A factor multiplies the estimates; demand in items/s is estimated from arrivals."""
        demand = {a.id: a.demand * changes.demand_factor for a in self.problem.applications}
        expected = {a.id: a.expected * changes.demand_factor for a in self.problem.applications}
        if changes.demand:
            record, factors = self.arrivals(changes)
            planned, mean = planner.estimated(record.history(factors), list(changes.demand), 0)
            demand |= planned
            expected |= mean
        problem = imagined(self.problem, changes, demand, expected)
        return replace(problem, previous=_kept(problem.previous, {device.id for device in problem.devices}))

    def now(self, allocation: Allocation) -> World:
        return world(self.stack, self.problem, allocation, self.recorded, {})

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
