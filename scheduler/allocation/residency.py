"""Which variants to keep resident: what the plan places, and beside it what makes devices useful in other moments."""

from __future__ import annotations

from .problem import Allocation, Problem


def residency(problem: Problem, allocation: Allocation) -> dict[str, tuple[str, ...]]:
    """Variant ids by device, most important first: what is placed there, then all that could be in time."""
    slo_s = {application.id: application.slo_s for application in problem.applications}
    placed: dict[str, list[str]] = {}
    for placement in allocation.placements:
        placed.setdefault(placement.device, []).append(placement.variant)
    able: dict[str, list[str]] = {}
    for variant in problem.variants:
        for kind, profile in variant.profiles.items():
            if profile.points and profile.points[0][1] <= slo_s[variant.application]:
                able.setdefault(kind, []).append(variant.id)
    return {
        device.id: tuple(dict.fromkeys([*placed.get(device.id, ()), *able.get(device.type, ())]))
        for device in problem.devices
    }
