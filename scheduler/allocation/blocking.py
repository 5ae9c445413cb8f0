"""Which residents would keep others waiting too long, and so are not to be run for the moment. Pure.

A run cannot be interrupted. An application with a long SLO that the plan serves on devices of its own, or not at all,
would fill with its long runs also those of an application with a short one, if it could be run there. What is blocking
stays loaded, for the next plan may want it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .problem import Allocation, Problem

#: an SLO is another one's so many times before its runs are kept apart
LONGER = 2.0
#: an application of which the plan leaves out more than this part is left out on purpose
LEFT_OUT = 0.01


def blocking(problem: Problem, plan: Allocation) -> dict[str, frozenset[str]]:
    """Variants by device among ``plan.residents``, never such as are placed there: their shortest run takes more than
    half of the SLO of something that is, and their own SLO is far longer."""
    applications = {application.id: application for application in problem.applications}
    variants = {variant.id: variant for variant in problem.variants}
    placed: dict[str, set[str]] = {device.id: set() for device in problem.devices}
    for placement in plan.placements:
        placed[placement.device].add(placement.variant)
    # One that the plan has no place for only because hardly anything is asked of it may be asked something yet.
    decided = {variants[variant].application for here in placed.values() for variant in here}
    decided |= {a.id for a in problem.applications if plan.left_out.get(a.id, 0.0) > LEFT_OUT * a.demand}

    def blocks(id: str, kind: str, slos: Sequence[float]) -> bool:
        variant = variants[id]
        own_s, run_s = applications[variant.application].slo_s, variant.profiles[kind].longest[0][1]
        return any(own_s >= LONGER * slo_s and run_s > slo_s / 2 for slo_s in slos)

    found = {}
    for device in problem.devices:
        here = placed[device.id]
        slos = [applications[variants[variant].application].slo_s for variant in here]
        others = [id for id in plan.residents.get(device.id, ()) if id not in here]
        found[device.id] = frozenset(
            id for id in others if variants[id].application in decided and blocks(id, device.type, slos)
        )
    return found
