"""Proteus without one of its parts (Section 6.5).

Without model placement, the first placement says which application each device serves, for good; the MILP chooses
variants and shares of all the application's devices together. (Proteus' authors take this for Sommelier; here they
differ in who chooses.)
"""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable
from dataclasses import replace

from scheduler.allocation.problem import Allocation, Problem
from scheduler.allocation.reasons import reasons
from scheduler.allocation.solver import Budget
from workers.dispatch.published.routing import Router, Shares

from ..dedicated import DedicatedChoices, ResidentCapacity, allocation_with, one_by_one
from ..placed_once import fixed, only
from . import strategy as proteus


def without_model_selection(problem: Problem) -> Allocation:
    """Each application has its most accurate variant only (w/o MS)."""
    return _solved(replace(problem, variants=only(problem, most_accurate=True)))


def without_adaptive_batching(problem: Problem) -> Allocation:
    """Batches have one row in the plan and on the devices (w/o AB)."""
    return _solved(replace(problem, variants=tuple(one_by_one(v) for v in problem.variants if not v.excluded)))


def without_query_assignment(problem: Problem) -> Allocation:
    """Only the placement is used, with the routing ``uniform`` (w/o QA)."""
    return _solved(replace(problem, variants=tuple(v for v in problem.variants if not v.excluded)))


def _solved(narrowed: Problem) -> Allocation:
    allocation = proteus.solve(narrowed)
    return replace(allocation, reasons=reasons(narrowed, allocation))


def without_model_placement(problem: Problem) -> Allocation:
    choices = DedicatedChoices(problem)
    fastest, placed = fixed(problem, choices)
    budget = Budget(problem.time_limit_s)
    residents: dict[str, ResidentCapacity] = {}
    rates: dict[str, float] = {}
    left = len(problem.applications)
    for application in problem.applications:
        mine = {
            device: resident for device, resident in fastest.items() if resident.variant.application == application.id
        }
        part = replace(
            problem,
            devices=tuple(d for d in problem.devices if d.id in mine),
            applications=(application,),
            variants=tuple(v for v in problem.variants if v.application == application.id and not v.excluded),
            time_limit_s=max(budget.left() / left, 0.01),
            previous=None,
        )
        left -= 1
        answer = proteus.solve(part)
        found = choices.residents(answer.placements)
        # A device that the MILP has no use for keeps its application all the same.
        residents |= {
            d: found[d] if d in found else choices.by_accuracy(s.device, application.id)[0] for d, s in mine.items()
        }
        rates |= dict.fromkeys(mine, 0.0) | {p.device: p.rate for p in answer.placements}
    return allocation_with(
        problem,
        residents,
        rates,
        f"Each device keeps the application that {placed}; variants and shares are chosen for all devices of an "
        "application together.",
        "Devices do not change applications in this stack: choose another one, or add devices.",
    )


class UniformOrder:
    def __init__(self, source: random.Random, shares: Shares) -> None:
        self._random = source
        self._devices = [device for device, _ in shares]

    def take(self, rows: int, able: Collection[Hashable]) -> Hashable | None:
        devices = [device for device in self._devices if device in able]
        return devices[int(self._random.random() * len(devices))] if devices else None


def uniform(seed: int) -> Router:
    source = random.Random(f"{seed}:routing")
    return Router(lambda shares: UniformOrder(source, shares))
