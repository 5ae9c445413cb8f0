"""Explanations of heuristic allocations: residents by device, demand left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..groups import usable
from ..problem import Allocation, Problem
from ..residents import ResidentCapacity


def explanations(
    problem: Problem, allocation: Allocation, residents: Mapping[str, ResidentCapacity], why: str, why_left_out: str
) -> tuple[str, ...]:
    """Return the explanations of an allocation in reading order.

    They say first what the strategy does, then what is left out, then what each device does.
    """
    return (
        why,
        *_left_out(problem, allocation, residents, why_left_out),
        *_devices(problem, allocation, residents),
    )


def _left_out(
    problem: Problem, allocation: Allocation, residents: Mapping[str, ResidentCapacity], why_left_out: str
) -> Iterator[str]:
    for application in problem.applications:
        missing = allocation.left_out[application.id]
        if missing <= 0:
            continue
        mine = [resident for resident in residents.values() if resident.variant.application == application.id]
        count = "1 device serves" if len(mine) == 1 else f"{len(mine)} devices serve"
        able = f"its {count} at most {sum(resident.capacity for resident in mine):.1f} items/s"
        yield (
            f"{application.id}: {missing:.3g} of {application.demand:.3g} items/s are left out: "
            f"{able if mine else 'no device serves it'}. {why_left_out}"
        )


def _devices(problem: Problem, allocation: Allocation, residents: Mapping[str, ResidentCapacity]) -> Iterator[str]:
    rates = {p.device: p.rate for p in allocation.placements}
    for device in problem.devices:
        resident = residents.get(device.id)
        if resident is None:
            why = (
                "this stack placed nothing here"
                if usable(device)
                else "all of its time is reserved, or it may hold no variants"
            )
            yield f"{device.id}: idle, because {why}."
            continue
        kept = "already loaded" if resident.variant.id in device.loaded else "to be loaded"
        yield (
            f"{device.id}: {resident.variant.label} ({resident.variant.application}) serves {rates[device.id]:.1f} of "
            f"at most {resident.capacity:.1f} items/s, in batches of up to {resident.max_batch}; {kept}."
        )
