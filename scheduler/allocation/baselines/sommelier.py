"""Sommelier and Proteus without model placement: fixed placement, chosen variants.

Sources: Guo et al., "Sommelier" (SIGMOD '22); Proteus, Sections 6.1.1 and 6.5. The first placement says which
application each device serves, for good (see :mod:`.first_placement`). Proteus' authors take both for the same system;
here they differ in who chooses. With Sommelier, which plans for one server and one model, each device keeps the share
of its application's queries that it had at first and takes the most accurate variant that carries it. Without model
placement, Proteus' MILP chooses variants and shares of all the application's devices together.
"""

from __future__ import annotations

from dataclasses import replace

from .. import proteus
from ..problem import Allocation, Problem
from ..residents import ResidentCapacity
from ..solver import Budget
from .dedicated import DedicatedChoices, allocation_with, in_force
from .first_placement import first_placement


def sommelier(problem: Problem) -> Allocation:
    """Choose for each device alone the most accurate variant for its share.

    It is the most accurate one that can serve the device's share of the application's demand, or else the fastest one.
    Shares are in proportion to what the devices could do with their fastest variants.
    """
    choices = DedicatedChoices(problem)
    fastest, placed = _fixed(problem, choices)
    demand = {a.id: a.demand for a in problem.applications}
    most = _capacity(problem, fastest)
    residents: dict[str, ResidentCapacity] = {}
    rates: dict[str, float] = {}
    for device, quick in fastest.items():
        application = quick.variant.application
        share = demand[application] * quick.capacity / most[application]
        able = [resident for resident in choices.by_accuracy(quick.device, application) if resident.capacity >= share]
        residents[device] = able[0] if able else quick
        rates[device] = min(share, residents[device].capacity)
    return allocation_with(
        problem,
        residents,
        rates,
        f"Each device keeps the application that {placed}, and runs the most accurate variant that can serve its "
        "share.",
        "Devices do not change applications or shares in this stack: choose another one, or add devices.",
    )


def without_model_placement(problem: Problem) -> Allocation:
    """Solve Proteus' MILP (Eq. 1 to 7) for each application on its own devices.

    Applications have their devices for good.
    """
    choices = DedicatedChoices(problem)
    fastest, placed = _fixed(problem, choices)
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


def _fixed(problem: Problem, choices: DedicatedChoices) -> tuple[dict[str, ResidentCapacity], str]:
    """Return the placement that holds for good, with the fastest variants.

    Returns:
        By device, the fastest resident of the application that it serves for good; and an explanation of when this was
        placed.
    """
    placed = in_force(problem, choices)
    if placed is None:
        return first_placement(problem, choices), "this plan gives it"
    return {
        device: choices.fastest(resident.device, resident.variant.application) for device, resident in placed.items()
    }, "an earlier plan gave it"


def _capacity(problem: Problem, residents: dict[str, ResidentCapacity]) -> dict[str, float]:
    capacity = dict.fromkeys((a.id for a in problem.applications), 0.0)
    for resident in residents.values():
        capacity[resident.variant.application] += resident.capacity
    return capacity
