"""Stored plans for pages. Names come from the plan: its variants may be deleted by now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from console.templatetags.console_format import seconds_ms
from scheduler.models import Plan
from scheduler.plans import left_out, placements

#: what demand asks for, again and again while it rises
BY_DEMAND = frozenset({Plan.Trigger.BURST, Plan.Trigger.OVERLOAD})
#: longest time between two plans of one burst
RUN_GAP = timedelta(seconds=5)


def by_device(plan: Plan) -> list[dict[str, Any]]:
    types = {device["id"]: device["type"] for device in plan.inputs.get("devices") or ()}
    residents: dict[str, list[dict[str, Any]]] = {}
    for resident in placements(plan.wire):
        residents.setdefault(resident["device"], []).append(resident)
    rows = []
    for device in plan.wire.get("devices") or ():
        hosted = residents.get(device["device"], [])
        rows.append(
            {
                "device": device["device"],
                "type": types.get(device["device"], ""),
                "revisit_ms": device.get("revisit_s", 0.0) * 1000,
                "time_share": sum(resident["time_share"] for resident in hosted),
                "residents": hosted,
            }
        )
    return rows


def by_application(plan: Plan) -> list[dict[str, Any]]:
    served = plan.allocation.get("served") or {}
    missing = left_out(plan)
    bands = plan.wire.get("bands") or {}
    routes: dict[str, list[Mapping[str, Any]]] = {}
    for route in plan.wire.get("routes") or ():
        routes.setdefault(route["application"], []).append(route)
    return [
        {
            "name": application["id"],
            "slo_ms": application["slo_s"] * 1000,
            "demand": application["demand"],
            "expected": application.get("expected"),
            "served": served.get(application["id"], 0.0),
            "left_out": missing.get(application["id"], 0.0),
            "band": bands.get(application["id"]),
            "routes": routes.get(application["id"], []),
        }
        for application in plan.inputs.get("applications") or ()
    ]


def measured(plan: Plan) -> list[dict[str, Any]]:
    """The plan's variants with p95 by batch in words: templates would take longer."""
    return [
        {
            "id": variant["id"],
            "application": variant["application"],
            "accuracy": variant["accuracy"],
            "profiles": [
                (kind, ", ".join(f"{batch} → {seconds_ms(p95_s)}" for batch, p95_s in profile["points"]))
                for kind, profile in variant.get("profiles", {}).items()
            ],
        }
        for variant in (plan.problem or plan.inputs).get("variants") or ()
    ]


def runs(plans: Iterable[Plan]) -> list[list[Plan]]:
    """Group consecutive plans as the history shows them, newest first as they come.

    A rise of demand, which asks for a plan every second, is one run, and so are plans that changed nothing; every other
    plan is a run of its own.
    """
    found: list[list[Plan]] = []
    for plan in plans:
        last = found[-1][-1] if found else None
        if last is not None and (_one_burst(last, plan) or not (last.changed or plan.changed)):
            found[-1].append(plan)
        else:
            found.append([plan])
    return found


def _one_burst(newer: Plan, older: Plan) -> bool:
    return (
        {older.trigger, newer.trigger} <= BY_DEMAND
        and newer.stack == older.stack
        and abs(newer.created - older.created) <= RUN_GAP
    )
