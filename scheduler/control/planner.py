"""One pass of the control loop: demand, problem, strategy, stored plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction

from registry import clock
from registry import models as registry
from scheduler import telemetry, trail
from scheduler.allocation.fallback import verified
from scheduler.allocation.problem import Allocation, Problem
from scheduler.control import choices, requested_variants, sizes, versions
from scheduler.control.assemble import assemble, available_devices, idle_devices
from scheduler.control.demand import HISTORY_S, Estimates, estimates
from scheduler.control.leases import HeldLease
from scheduler.control.wire import wire_plan
from scheduler.models import MOST_DETAIL, Plan, kept_inputs
from scheduler.stacks import strategies
from workers import log

logger = log.get("planner")


def make_plan(
    trigger: str, detail: str = "", observed: dict[str, float] | None = None, lease: HeldLease | None = None
) -> Plan | None:
    """Estimate demand, solve, and store the plan.

    None where there is nothing to plan (no device, or no application with a ready variant and nothing that the plan in
    force keeps loaded): that plan stays, since a control plane that just started may not have received its nodes'
    reports yet. The plan is one that passes verification, though the strategy's own answer may not
    (:attr:`Plan.refused`).

    Args:
        lease: under which it is stored; None: nobody else plans.

    Raises:
        UnusableProblem: the problem has values out of range.
        NoAllocation: no allocation passes verification; the plan in force stays.
        LeaseLost: another process plans now; nothing was stored.
    """
    problem, devices = present_problem(observed)
    latest = Plan.objects.only("stack", "inputs", "allocation").first()
    resides = latest is not None and latest.allocation["placements"]
    if not problem.devices or not (problem.applications or resides):
        logger.info("nothing_to_plan", devices=len(problem.devices), applications=len(problem.applications))
        return None
    stack = choices.current()
    with_previous = dataclasses.replace(problem, previous=in_force(stack.name, latest), at_s=clock.steady())
    allocation = verified(with_previous, strategies.get(stack.strategy))
    used = {device.ref for device in devices}
    idle = [device for device in idle_devices() if device.ref not in used]
    plan = _row(trigger, detail, stack.name, problem, allocation, [*devices, *idle])
    plan.changed = trail.changed(latest, plan)
    _store(plan, lease)
    logger.info(
        "plan",
        version=plan.pk,
        trigger=trigger,
        detail=detail,
        stack=plan.stack,
        demand=round(plan.demand, 2),
        served=round(plan.served, 2),
        accuracy=round(plan.accuracy, 3),
        solve_ms=round(plan.solve_s * 1000, 1),
        gap=plan.gap,
        moves=plan.moves,
        refused=plan.refused,
    )
    return plan


def present_problem(observed: dict[str, float] | None = None) -> tuple[Problem, list[registry.Device]]:
    """The problem as of now, without what is in force, and its devices."""
    devices = available_devices()
    seconds = telemetry.gateway_seconds(HISTORY_S + 1)
    demand = _demand(seconds, observed)
    asked_for = telemetry.sizes_arrived(sizes.ASKED_FOR_S)
    mixes = sizes.mixes(telemetry.arrivals_by_size(seconds), asked_for, clock.wall())
    problem = assemble(demand.planned, devices, mixes, demand.expected)
    return problem, devices


def _demand(seconds: list[dict[str, Any]], observed: dict[str, float] | None) -> Estimates:
    active = registry.Application.objects.filter(state=registry.Application.State.ACTIVE)
    names = list(active.values_list("name", flat=True))
    return estimated(telemetry.sum_arrivals(seconds), names, int(clock.wall()), observed)


def estimated(
    arrivals: Sequence[tuple[int, Mapping[str, float]]],
    names: Sequence[str],
    now: int,
    observed: Mapping[str, float] | None = None,
) -> Estimates:
    """As :func:`.demand.estimates` does, by this appliance's settings; arrivals are recorded or imagined."""
    chosen = settings.NEREUS
    return estimates(arrivals, names, now, observed, chosen.plan_period_s, chosen.demand_quantile)


def in_force(stack: str, latest: Plan | None) -> Allocation | None:
    """The allocation of the newest plan where ``stack`` made it: no strategy builds on another one's."""
    if latest is None or latest.stack != stack:
        return None
    try:
        return msgspec.convert(latest.allocation, Allocation)
    except msgspec.ValidationError as error:
        logger.warning("plan_unreadable", version=latest.pk, error=str(error))
        return None


def _row(
    trigger: str,
    detail: str,
    stack: str,
    problem: Problem,
    allocation: Allocation,
    devices: list[registry.Device],
) -> Plan:
    """Return the plan's row, without its version.

    It is made before the transaction that stores it, since that holds up other writers.
    """
    ordered = sorted(devices, key=lambda d: d.ref)
    stored = builtins(problem)
    return Plan(
        trigger=trigger,
        trigger_detail=detail[:MOST_DETAIL],
        stack=stack,
        problem=stored,
        inputs=kept_inputs(stored),
        allocation=builtins(dataclasses.replace(allocation, policies=())),
        wire=msgspec.to_builtins(wire_plan(0, problem, allocation, ordered, stack, requested_variants.current())),
        status=allocation.status,
        accuracy=allocation.accuracy,
        demand=sum(application.demand for application in problem.applications),
        served=sum(allocation.served.values()),
        solve_s=allocation.solve_s,
        gap=allocation.gap,
        method=allocation.method,
        moves=allocation.moves,
        reasons=list(allocation.reasons),
    )


@transaction.atomic
def _store(plan: Plan, lease: HeldLease | None) -> None:
    if lease is not None:
        lease.confirm()
    plan.pk = versions.next_version()
    plan.wire["version"] = plan.pk
    plan.save(force_insert=True)


def builtins(value: Any) -> Any:
    """As JSON has it, equal for equal values. Solvers' numbers may be numpy's."""
    return msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=float)
