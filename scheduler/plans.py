"""Stored plans as browsers follow them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from scheduler.models import Plan

#: items/s below which nothing is left out but a rounding error
NEGLIGIBLE = 1e-6


def left_out(plan: Plan) -> dict[str, float]:
    return above_rounding(plan.allocation.get("left_out"))


def left_out_by(versions: Iterable[int]) -> dict[int, dict[str, float]]:
    found = Plan.objects.filter(pk__in=list(versions)).values_list("pk", "allocation__left_out")
    return {version: above_rounding(rates) for version, rates in found}


def above_rounding(rates: Mapping[str, float] | None) -> dict[str, float]:
    return {name: rate for name, rate in (rates or {}).items() if rate > NEGLIGIBLE}


def residents() -> Iterator[tuple[str, int]]:
    """Pairs of a device's ref and a variant's id, of the plan in force."""
    wire = Plan.objects.values_list("wire", flat=True).first() or {}
    for placement in placements(wire):
        yield placement["device"], placement["variant"]


def placements(wire: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "device": device["device"],
            "variant": resident["variant"]["id"],
            "variant_name": resident["variant"]["name"],
            "application": resident["variant"]["application"],
            "accuracy": resident["variant"].get("accuracy"),
            "accuracy_normalized": resident["variant"].get("accuracy_normalized"),
            "rate": resident["rate"],
            "time_share": resident["time_share"],
            "max_batch": resident["max_batch"],
        }
        for device in wire.get("devices") or ()
        for resident in device["residents"]
    ]


def event(plan: Plan) -> dict[str, Any]:
    """A plan as browsers read it; ``created``: unix seconds."""
    return {
        "version": plan.pk,
        "created": plan.created.timestamp(),
        "trigger": plan.trigger,
        "placements": placements(plan.wire),
    }
