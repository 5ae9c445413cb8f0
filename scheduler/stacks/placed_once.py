"""First placement of static strategies: all devices, by the first demand's mix.

Proteus' baselines get their static placement from its MILP "at the start of the experiment" (Section 6.1.1), for a
demand known beforehand. The simulator makes the trace's mean rates the first demand. Live it is unknown, and the first
demand alone would give a placement for a start-up. So the first demand counts as a *mix*, and the cluster is placed for
the largest multiple of it: maximise L with capacity(q) >= L * demand(q) for every application q.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyscipopt import Model, quicksum

from scheduler.allocation.groups import IdenticalDevices, grouped
from scheduler.allocation.problem import Allocation, ApplicationDemand, CandidateVariant, Problem
from scheduler.allocation.solver import Budget, maximise, names, new_model

from .dedicated import (
    NOTHING,
    DedicatedChoices,
    ResidentCapacity,
    allocation_with,
    capacity_by_application,
    counted,
    evenly,
    placed,
)

#: Relative gap of the placement.
GAP = 1e-3
#: Smallest demand of an application in the mix, as a part of the largest.
LEAST_PART = 1e-3


def only(problem: Problem, most_accurate: bool) -> tuple[CandidateVariant, ...]:
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


def static(problem: Problem, which: str) -> Allocation:
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


def fixed(problem: Problem, choices: DedicatedChoices) -> tuple[dict[str, ResidentCapacity], str]:
    """The placement that holds for good, with the fastest variants, and since when."""
    placed = in_force(problem, choices)
    if placed is None:
        return first_placement(problem, choices), "this plan gives it"
    return {
        device: choices.fastest(resident.device, resident.variant.application) for device, resident in placed.items()
    }, "an earlier plan gave it"


def in_force(problem: Problem, choices: DedicatedChoices) -> dict[str, ResidentCapacity] | None:
    """The residents of the previous allocation, by device.

    None where there is none, or where the cluster changed since: other applications, a resident no longer possible, or
    a usable device unused.
    """
    previous = problem.previous
    if previous is None or set(previous.served) != {a.id for a in problem.applications}:
        return None
    residents = choices.residents(previous.placements)
    if len(residents) != len(previous.placements):
        return None
    if any(device.id not in residents and choices.useful(device) for device in problem.devices):
        return None
    return residents


def first_placement(problem: Problem, choices: DedicatedChoices) -> dict[str, ResidentCapacity]:
    """The fastest residents for the largest multiple of the demand's mix, by device.

    Devices that the mix does not need go one by one to the application with the least capacity for its demand. Where no
    multiple can be served (more applications than devices that suit them), the placement serves the most weighted items
    of the demand itself. A device is without a resident only where no variant can run.
    """
    groups = grouped(problem.devices)
    options = {
        (g, a.id): resident
        for g, group in enumerate(groups)
        for a in problem.applications
        if (resident := choices.fastest(group.one, a.id)) is not None
    }
    if not options:
        return {}
    mix = _mix([a for a in problem.applications if any(q == a.id for _, q in options)])
    budget = Budget(problem.time_limit_s)
    gap = max(problem.gap, GAP)
    counts = _most_of_the_mix(groups, options, mix, budget.left() * 0.6, gap)
    if counts is None:
        counts = _most_items(problem, groups, options, mix, budget.left(), gap)
    return _on_devices(groups, options, counts, mix, choices)


def _mix(applications: list[ApplicationDemand]) -> dict[str, float]:
    largest = max(a.demand for a in applications)
    if largest <= NOTHING:
        return {a.id: 1.0 for a in applications}
    return {a.id: max(a.demand, largest * LEAST_PART) for a in applications}


def _model(
    groups: list[IdenticalDevices], options: Mapping[tuple[int, str], ResidentCapacity]
) -> tuple[Model, dict, dict]:
    model = new_model()
    n = counted(model, groups, options)
    capacity = {
        q: quicksum(resident.capacity * n[g, p] for (g, p), resident in options.items() if p == q)
        for q in {q for _, q in n}
    }
    return model, n, capacity


def _most_of_the_mix(groups, options, mix: Mapping[str, float], seconds: float, gap: float):
    """Counts by (group, application) for the largest multiple; None: it is 0."""
    model, n, capacity = _model(groups, options)
    most = {q: sum(len(groups[g]) * s.capacity for (g, p), s in options.items() if p == q) for q in mix}
    # In units of the scarcest application's capacity on all devices, so that the multiple is at most 1.
    unit = min(most[q] / mix[q] for q in mix)
    multiple = model.addVar("multiple", lb=0, ub=1)
    for q in mix:
        model.addCons(capacity[q] / (mix[q] * unit) >= multiple)
    solution = maximise(model, multiple, seconds, gap)
    if solution is None or solution.objective <= 1e-9:
        return None
    return {key: round(solution.values[names(("n", *key))]) for key in n}


def _most_items(problem: Problem, groups, options, mix: Mapping[str, float], seconds: float, gap: float):
    model, n, capacity = _model(groups, options)
    weight = {a.id: a.weight for a in problem.applications}
    total = sum(weight[q] * demand for q, demand in mix.items())
    parts = []
    for q, demand in mix.items():
        share = model.addVar(names(("y", q)), lb=0, ub=1)
        model.addCons(share <= capacity[q] / demand)
        parts.append(weight[q] * demand / total * share)
    solution = maximise(model, quicksum(parts), seconds, gap)
    return {key: 0 if solution is None else round(solution.values[names(("n", *key))]) for key in n}


def _on_devices(
    groups: list[IdenticalDevices], options, counts, mix: Mapping[str, float], choices: DedicatedChoices
) -> dict[str, ResidentCapacity]:
    residents = placed(choices, groups, {(key[0], options[key].variant.id): count for key, count in counts.items()})
    capacity = capacity_by_application(residents)
    for g, group in enumerate(groups):
        able = [q for h, q in options if h == g]
        for device in group.devices:
            if device.id in residents or not able:
                continue
            poorest = min(able, key=lambda q: (capacity[q] / mix[q], q))
            residents[device.id] = choices.resident(device, options[g, poorest].variant)
            capacity[poorest] += options[g, poorest].capacity
    return {device: residents[device] for device in choices.devices if device in residents}
