"""Clipper (Crankshaw et al., NSDI '17) as Proteus compares with it (Section 6.1.1): a placement that never changes.

Each application has one variant, with high throughput the least accurate one, with high accuracy the most accurate one,
among those that some device can run within half of the SLO. The MILP places them once, for the whole cluster (see
:mod:`.first_placement`); afterwards only rates follow the demand, in constant proportions. Clipper's batching is a
policy of its own.
"""

from __future__ import annotations

from dataclasses import replace

from ..problem import Allocation, Problem, Variant
from .dedicated import Seating, evenly, in_force, settled
from .first_placement import first_placement


def clipper_ht(problem: Problem) -> Allocation:
    """Clipper-HT: the least accurate variants, placed once."""
    return _static(replace(problem, variants=only(problem, most_accurate=False)), "least accurate")


def clipper_ha(problem: Problem) -> Allocation:
    """Clipper-HA: the most accurate variants, placed once."""
    return _static(replace(problem, variants=only(problem, most_accurate=True)), "most accurate")


def only(problem: Problem, most_accurate: bool) -> tuple[Variant, ...]:
    """Each application's most or least accurate variant that some device can run within half of the SLO; of equally
    accurate ones the one with the highest capacity on a device."""
    seating = Seating(problem)
    kept: dict[str, tuple[tuple[float, float], Variant]] = {}
    types = {(d.type, d.available, d.memory_bytes, d.max_resident): d for d in problem.devices}
    for variant in problem.variants:
        seats = [seat for device in types.values() if (seat := seating.seat(device, variant)) is not None]
        if not seats:
            continue
        accuracy = variant.accuracy if most_accurate else -variant.accuracy
        score = accuracy, max(seat.capacity for seat in seats)
        if variant.application not in kept or score > kept[variant.application][0]:
            kept[variant.application] = score, variant
    return tuple(variant for _, variant in kept.values())


def _static(problem: Problem, which: str) -> Allocation:
    seating = Seating(problem)
    seats = in_force(problem, seating)
    placed = "were placed by an earlier plan"
    if seats is None:
        seats, placed = first_placement(problem, seating), "are placed now"
    return settled(
        problem,
        seats,
        evenly(problem, seats),
        f"Each application runs only its {which} variant. Variants {placed}, and stay where they are until devices, "
        "applications or variants change.",
        "This stack does not follow the demand: choose another one, or add devices.",
    )
