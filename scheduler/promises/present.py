"""The cluster as it is.

The plan in force, what arrived, and the check index of what plans are made for.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping
from dataclasses import replace

import msgspec
from django.conf import settings
from django.db.models import F

from registry.models import Application, Profile, ProfileLatency, Variant
from scheduler import telemetry
from scheduler.allocation.problem import Allocation, Problem
from scheduler.control import choices
from scheduler.control.assemble import available_devices
from scheduler.models import Plan
from scheduler.simulation.scenario import ControlSettings

from .recorded import LEAST_S, RECORD_S, Recorded, record
from .windows import SOLVE_S, NothingToPromise, World


def check_index() -> str:
    """A name for what plans depend on, but for demand and what is loaded."""
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
    """Recent arrivals."""
    entries = telemetry.gateway_seconds(RECORD_S + 1)
    queries, rows = (telemetry.sum_arrivals(entries, field) for field in ("arrived", "arrived_rows"))
    items = dict(rows)
    seconds = [
        (t, {name: (count, items.get(t, {}).get(name, 0.0)) for name, count in counts.items()})
        for t, counts in queries[:-1]
    ]
    return record(seconds, applications)


def medians() -> dict[str, float]:
    """Median run time over the 95th percentile, by variant id."""
    ratios: dict[int, list[float]] = {}
    measured = ProfileLatency.objects.filter(p95_ms__gt=0, p50_ms__gt=0)
    for variant, p50, p95 in measured.values_list(F("profile__variant"), "p50_ms", "p95_ms"):
        ratios.setdefault(variant, []).append(min(1.0, p50 / p95))
    return {str(variant): statistics.fmean(some) for variant, some in ratios.items()}


def world(
    stack: str, problem: Problem, allocation: Allocation, arrived: Recorded, factors: Mapping[str, float]
) -> World:
    """The inputs of a promise for this plan."""
    control = ControlSettings(
        period_s=settings.NEREUS.plan_period_s,
        headroom=settings.NEREUS.headroom,
        solve_s=SOLVE_S,
    )
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
    """The plan in force and what a promise for it is made of."""
    plan, problem, allocation = in_force()
    arrived = recorded([a.id for a in problem.applications])
    if arrived.seconds < LEAST_S:
        raise NothingToPromise(f"{arrived.seconds} s of arrivals are recorded, and {LEAST_S} s are needed.")
    return plan, world(plan.stack, problem, allocation, arrived, {})
