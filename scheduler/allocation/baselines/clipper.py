"""Clipper with a static placement, as Proteus compares with it.

Sources: Crankshaw et al., "Clipper" (NSDI '17); Proteus, Section 6.1.1.

Each application has one variant, with high throughput the least accurate one, with high accuracy the most accurate one,
among those that some device can run within half of the SLO. The MILP places them once, for the whole cluster (see
:mod:`.first_placement`); afterwards only rates follow the demand, in constant proportions. Clipper's batching is a
batch policy of its own. Clipper+ (INFaaS, Section 6) is such a placement under INFaaS' own dispatcher.
"""

from __future__ import annotations

from dataclasses import replace

from ..problem import Allocation, CandidateVariant, Problem
from .dedicated import DedicatedChoices, allocation_with, evenly, in_force
from .first_placement import first_placement
from .infaas_greedy import developers_choice


def clipper_ht(problem: Problem) -> Allocation:
    """Clipper-HT: the least accurate variants, placed once."""
    return _static(replace(problem, variants=only(problem, most_accurate=False)), "least accurate")


def clipper_ha(problem: Problem) -> Allocation:
    """Clipper-HA: the most accurate variants, placed once."""
    return _static(replace(problem, variants=only(problem, most_accurate=True)), "most accurate")


def clipper_plus(problem: Problem) -> Allocation:
    """Clipper+: the developer's choice of each application, placed once.

    Each application has this one variant, and as many instances as devices allow.
    """
    return _static(replace(problem, variants=developers_choice(problem)), "chosen")


def only(problem: Problem, most_accurate: bool) -> tuple[CandidateVariant, ...]:
    """Return each application's most, or least, accurate variant that can run.

    These are variants that some device can run within half of the SLO. Among equally accurate ones it is the one with
    the highest capacity on a device.
    """
    choices = DedicatedChoices(problem)
    kept: dict[str, tuple[tuple[float, float], CandidateVariant]] = {}
    types = {(d.type, d.available, d.memory_bytes, d.max_resident): d for d in problem.devices}
    for variant in problem.variants:
        residents = [
            resident for device in types.values() if (resident := choices.resident(device, variant)) is not None
        ]
        if not residents:
            continue
        accuracy = variant.accuracy if most_accurate else -variant.accuracy
        score = accuracy, max(resident.capacity for resident in residents)
        if variant.application not in kept or score > kept[variant.application][0]:
            kept[variant.application] = score, variant
    return tuple(variant for _, variant in kept.values())


def _static(problem: Problem, which: str) -> Allocation:
    choices = DedicatedChoices(problem)
    residents = in_force(problem, choices)
    placed = "were placed by an earlier plan"
    if residents is None:
        residents, placed = first_placement(problem, choices), "are placed now"
    return allocation_with(
        problem,
        residents,
        evenly(problem, residents),
        f"Each application runs only its {which} variant. Variants {placed}, and stay where they are until devices, "
        "applications or variants change.",
        "This stack does not follow the demand: choose another one, or add devices.",
    )
