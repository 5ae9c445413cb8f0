"""Reasons of heuristic allocations: what the strategy does, and demand left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..problem import Allocation, Problem
from ..residents import ResidentCapacity


def explanations(
    problem: Problem, allocation: Allocation, residents: Mapping[str, ResidentCapacity], why: str, why_left_out: str
) -> Iterator[str]:
    yield why
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
