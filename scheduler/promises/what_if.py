"""Answers to operators' what-ifs: the plan that would result, then its promise.

Changes that can be applied are applied here, too. The worker of the simulation queue makes plans and promises. It makes
the plans of what-ifs that wait before it goes on with a simulation, between two windows, so that a plan is there within
about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from registry import clock, members, services
from registry.audit.recording import record as audit
from registry.errors import Conflict, InvalidInput, invalid
from registry.models import Application, Node, Variant
from scheduler import live, queue
from scheduler.allocation.fallback import NoAllocation, verified
from scheduler.allocation.problem import Allocation, Problem
from scheduler.allocation.verification import UnusableProblem
from scheduler.control import planner
from scheduler.models import WhatIf
from scheduler.promises import keeping, present
from scheduler.promises.changes import EXCLUDED, PINNED, Changes, check
from scheduler.promises.recorded import LEAST_S, RECORD_S
from scheduler.promises.windows import NothingToPromise, simulated, windows_for
from scheduler.simulation import SimulationError
from scheduler.stacks import strategies
from workers import log
from workers.dispatch.stacks import STACKS

logger = log.get("promises")

TASK = "scheduler.what_if"
#: seconds after which a what-if has failed whose worker gave no sign: that was stopped
LOST_S = 120.0
#: progress of a simulation that a worker has taken up
TAKEN = 0.001
#: times that a what-if is resumed: one that ended its worker twice would do so again
MOST_RESUMED = 1
#: what-ifs that may wait for an answer
MOST_WAITING = 20
#: progress is stored once it rose by so much
STEP = 0.1
#: what the worker needs of a what-if until it is answered
WORKING = ("snapshot", "problem", "allocation", "present_allocation")


class Outdated(Exception):
    """Another release asked: this one does not understand what it kept for the answer."""


#: errors that say by themselves why there is no answer
EXPECTED = (InvalidInput, NothingToPromise, SimulationError, NoAllocation, UnusableProblem, Outdated)

State = WhatIf.State
T = TypeVar("T")


def ask(changes: Changes, by: str) -> WhatIf:
    """Store a what-if and have it answered.

    Raises:
        InvalidInput: with a fault for each change that cannot be.
        Conflict: there is nothing to plan with, or too many wait for their answers.
    """
    give_up_lost()
    if WhatIf.objects.filter(state__in=WhatIf.OPEN).count() >= MOST_WAITING:
        raise Conflict(f"{MOST_WAITING} what-ifs wait for their answers already; ask again once some have them")
    index, snapshot = present.check_index(), present.Snapshot.take()
    if not snapshot.problem.devices or not snapshot.problem.applications:
        raise Conflict("there is nothing to plan with: no device is up, or no application has a ready variant")
    check(snapshot.problem, changes)
    row = WhatIf.objects.create(
        stamp=clock.stamp(),
        by=by[:150],
        changes=msgspec.to_builtins(changes),
        index=index,
        plan={"snapshot": planner.builtins(snapshot)},
    )
    queue.send(TASK)
    return row


def give_up_lost() -> int:
    error = f"No sign of the simulation worker for {LOST_S:.0f} s: it is away or was stopped. Ask again."
    lost = [row for row in WhatIf.objects.filter(state__in=WhatIf.OPEN) if clock.age(row.stamp) > LOST_S]
    return sum(
        WhatIf.objects.filter(pk=row.pk, state=row.state).update(state=State.FAILED, error=error, plan=slim(row.plan))
        for row in lost
    )


def resume() -> None:
    begun = Q(state=State.PLANNING) | Q(state=State.SIMULATING, progress__gt=0.0)
    left = WhatIf.objects.filter(begun, holder=settings.NEREUS.instance)
    error = "The simulation worker ended twice while it answered this. Its log says why."
    left.filter(resumed__gte=MOST_RESUMED).update(state=State.FAILED, error=error)
    again = {"progress": 0.0, "holder": "", "resumed": F("resumed") + 1, "stamp": clock.stamp()}
    left.filter(state=State.SIMULATING).update(**again)
    left.filter(state=State.PLANNING).update(state=State.WAITING, **again)
    if _untaken().exists():
        queue.send(TASK)


class Withdrawn(Exception):
    pass


def cancel(row: WhatIf, by: str) -> None:
    waits = WhatIf.objects.filter(pk=row.pk, state__in=[State.WAITING, State.SIMULATING])
    if not waits.update(state=State.FAILED, error=f"Cancelled by {by}."):
        row.refresh_from_db()
        raise Conflict(f"what-if {row.pk} cannot be cancelled now: {row.get_state_display()}")
    row.refresh_from_db()
    # No worker writes to it any more.
    row.plan = slim(row.plan)
    row.save(update_fields=["plan"])
    _changed(row)


def work() -> None:
    """Answer all what-ifs that wait, oldest first, also those of lost messages."""
    plan_waiting()
    while (row := _take()) is not None:
        with _failures(row):
            _answer(row)


def _take() -> WhatIf | None:
    for row in _untaken().filter(state=State.SIMULATING).order_by("pk"):
        taken = {"progress": TAKEN, "holder": settings.NEREUS.instance}
        if _untaken().filter(pk=row.pk).update(**taken):
            row.progress = TAKEN
            return row
    return None


def _untaken():
    return WhatIf.objects.filter(state__in=[State.WAITING, State.SIMULATING], progress=0.0)


def _answer(row: WhatIf) -> None:
    snapshot, changes = _read(row)
    now = snapshot.now(_kept(row, "present_allocation", Allocation))
    record, factors = snapshot.arrivals(changes)
    problem = _kept(row, "problem", Problem)
    then = present.world(snapshot.stack, problem, _kept(row, "allocation", Allocation), record, factors)
    if not any(record.rate(a.id) for a in problem.applications):
        raise NothingToPromise(
            f"There are too few arrivals to simulate: at least {LEAST_S} of the last {RECORD_S} s must have had some."
        )
    windows, by = windows_for(now, then), keeping.corrections(snapshot.stack)
    row.present_promise = keeping.expectations(simulated(now, _progress(row, 0.0), windows), by)
    found = simulated(then, _progress(row, 0.5), windows)
    row.promise = keeping.expectations(found, by)
    how = f"{record.seconds} s as recorded; Poisson where nothing came"
    row.plan = slim(row.plan) | {"window_s": found.window_s, "windows": found.windows, "arrivals": how}
    row.progress = 1.0
    _store(row, State.DONE, "promise", "present_promise", "plan", "progress")


def plan_waiting() -> None:
    """Make the plans of what-ifs that wait; none is lost while the worker does."""
    _untaken().update(stamp=clock.stamp())
    for row in WhatIf.objects.filter(state=State.WAITING).order_by("pk"):
        taken = {"state": State.PLANNING, "holder": settings.NEREUS.instance}
        if WhatIf.objects.filter(pk=row.pk, state=State.WAITING).update(**taken):
            row.state = State.PLANNING
            with _failures(row):
                _plan(row)


def _plan(row: WhatIf) -> None:
    snapshot, changes = _read(row)
    check(snapshot.problem, changes)
    strategy = strategies.get(STACKS[snapshot.stack].strategy)
    problem = snapshot.imagined(changes)
    before = verified(snapshot.problem, strategy)
    after = before if changes.empty else verified(problem, strategy)
    row.present_plan = plan_summary(snapshot.problem, before)
    row.plan |= plan_summary(problem, after) | {
        "stack": snapshot.stack,
        "base": snapshot.base(),
        "problem": planner.builtins(problem),
        "allocation": planner.builtins(after),
        "present_allocation": planner.builtins(before),
    }
    _store(row, State.SIMULATING, "plan", "present_plan")


def _read(row: WhatIf) -> tuple[present.Snapshot, Changes]:
    return _kept(row, "snapshot", present.Snapshot), msgspec.convert(row.changes, Changes)


def _kept(row: WhatIf, name: str, kind: type[T]) -> T:
    try:
        return msgspec.convert(row.plan[name], kind)
    except (KeyError, msgspec.ValidationError) as error:
        raise Outdated("This was asked before the appliance was upgraded. Ask again.") from error


def _progress(row: WhatIf, done: float) -> Callable[[float], None]:
    def step(share: float) -> None:
        plan_waiting()
        share = done + share / 2
        if share - row.progress >= STEP:
            row.progress, row.stamp = min(share, 0.99), clock.stamp()
            _store(row, State.SIMULATING, "progress", "stamp")

    return step


def _store(row: WhatIf, state: str, *fields: str) -> None:
    """Store fields with the next state; Withdrawn: its state is another one by now."""
    taken = WhatIf.objects.filter(pk=row.pk, state=row.state)
    if not taken.update(state=state, **{name: getattr(row, name) for name in fields}):
        raise Withdrawn
    row.state = state
    _changed(row)


@contextmanager
def _failures(row: WhatIf) -> Iterator[None]:
    try:
        yield
    except Withdrawn:
        logger.info("what_if_withdrawn", what_if=row.pk)
    except Exception as error:
        if not isinstance(error, EXPECTED):
            logger.exception("what_if_failed", what_if=row.pk)
        row.error, row.plan = f"{error}"[:500] or type(error).__name__, slim(row.plan)
        with suppress(Withdrawn):
            _store(row, State.FAILED, "error", "plan")


def slim(plan: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name not in WORKING}


def _changed(row: WhatIf) -> None:
    live.publish("changed", {"kind": "what_if", "ref": str(row.pk)})


def plan_summary(problem: Problem, allocation: Allocation) -> dict[str, Any]:
    variants = {variant.id: variant for variant in problem.variants}
    mixes: dict[str, dict[str, dict[str, Any]]] = {a.id: {} for a in problem.applications}
    for placement in allocation.placements:
        variant = variants.get(placement.variant)
        if variant is None or variant.application not in mixes:
            continue
        empty = {"rate": 0.0, "devices": 0, "accuracy": variant.accuracy}
        mine = mixes[variant.application].setdefault(variant.label, empty)
        mine["rate"] += placement.rate
        mine["devices"] += 1
    return {
        "accuracy": allocation.accuracy,
        "devices": len(problem.devices),
        "demand": sum(a.demand for a in problem.applications),
        "served": sum(allocation.served.values()),
        "solve_s": allocation.solve_s,
        "reasons": list(allocation.reasons),
        "applications": {
            a.id: {
                "slo_ms": a.slo_s * 1000,
                "demand": a.demand,
                "served": allocation.served.get(a.id, 0.0),
                "left_out": max(0.0, allocation.left_out.get(a.id, 0.0)),
                "variants": mixes[a.id],
            }
            for a in problem.applications
        },
    }


# --- applying ---------------------------------------------------------------------------------------------------------


def apply(row: WhatIf, force: bool = False) -> WhatIf:
    """Order what operators can order of the changes.

    That is SLOs, pinned and excluded variants, and cordons.

    Args:
        force: also where a node to be cordoned alone serves an application.

    Raises:
        Conflict: the state is another one than the answer was computed for, nothing of it can be ordered, it has no
            plan yet, it failed or was cancelled, it was applied already, or an order is refused.
    """
    changes = msgspec.convert(row.changes, Changes)
    if not changes.applicable:
        raise Conflict("demand, added and removed devices can only be imagined; nothing here can be applied")
    with transaction.atomic():
        # Everything that changes these takes its lock first, so the state stays what it is until the end.
        for model in (Application, Variant, Node):
            list(model.objects.select_for_update().order_by("pk").values_list("pk", flat=True))
        row.refresh_from_db(fields=["state", "error", "plan"])
        if row.state == State.FAILED:
            raise Conflict(f"what-if {row.pk} cannot be applied: {row.error or row.get_state_display()} Ask again.")
        if not row.plan.get("applications"):
            raise Conflict(f"what-if {row.pk} has no plan yet: {row.get_state_display()}")
        if not WhatIf.objects.filter(pk=row.pk, applied=None).exists():
            raise Conflict(f"what-if {row.pk} was applied already")
        if present.check_index() != row.index:
            raise Conflict(
                "applications, variants, profiles, devices or the stack have changed since this answer was computed; "
                "ask again"
            )
        _order(changes, force)
        WhatIf.objects.filter(pk=row.pk).update(applied=timezone.now())
        audit("applied", "what-if", str(row.pk), after=msgspec.to_builtins(changes))
    row.refresh_from_db()
    return row


def _order(changes: Changes, force: bool) -> None:
    for name, slo_ms in changes.slo_ms.items():
        services.change_application(Application.objects.get(name=name), {"slo_ms": slo_ms})
    for name, choice in changes.variants.items():
        services.change_variant(_variant(name), {"pinned": choice == PINNED, "excluded": choice == EXCLUDED})
    for name in changes.cordon:
        members.cordon(Node.objects.get(name=name), force=force)


def _variant(name: str) -> Variant:
    application, _, variant = name.partition("/")
    found = Variant.objects.filter(application__name=application, name=variant).first()
    if found is None:
        raise invalid(f"variants.{name}", "is gone")
    return found
