"""Which variants to keep resident: what the plan uses, and beside it what the devices need in other moments.

Where nothing limits what a device may hold, it holds whatever could be in time there. Elsewhere the room is filled by
planning for multiples of the demand, one variant to a device each time: what a burst needs is loaded before it comes,
each device has its part in it, and a change of demand is met by other shares of the same residents. Residents are
chosen anew only when the demand has left the range that they were chosen for, since a load costs more than it takes:
the device stands still, and what makes room for it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median_low

from .concrete import PRECISION
from .nereus import GAP
from .problem import Allocation, Device, Problem, Variant
from .standby_fill import fill

#: multiples of the demand to provide for, the most important first, where a device may hold 1, 2 or more variants. The
#: first is lowered to what the devices can do at all, but not below :data:`LEAST`
MULTIPLES = ((4.0,), (6.0, 1.5), (8.0, 1.0, 3.0))
LEAST = 1.5
#: a plan that serves this share of what it was asked for serves it
NEARLY_ALL = 0.99
#: share of the demand that every application gets in such a plan, however costly it is
FLOOR = 0.5
#: residents serve on while each application's demand is within these multiples of what they were chosen for
RANGES = ((1 / 2.5, 1.6), (1 / 4, 2.5), (1 / 5, 3.0))
#: demand below this (items/s) is as good as none: ratios of small numbers say little
SMALL = 5.0

#: residents are good enough that serve all but this part of what could be served, and lose no more points of accuracy
AS_MUCH, AS_ACCURATE = 0.002, 3.0

Solve = Callable[[Problem], Allocation]
Residents = Mapping[str, tuple[str, ...]]


def with_residents(problem: Problem, solve: Solve) -> Allocation:
    """An allocation by ``solve`` with residents on each device, among them all that it places.

    In this order, what first serves nearly as much and as accurately as a plan that is free to choose: the residents in
    force; those for multiples of the demand; those of the free plan, with what fits beside them. The bound is that of
    the free plan, so that the gap tells what residents cost.
    """
    free = solve(problem)
    if _unlimited(problem):
        return replace(free, residents=_everything(problem))
    room = _room(problem)
    multiples, range_ = MULTIPLES[room - 1], RANGES[room - 1]
    demand = {application.id: application.demand for application in problem.applications}
    previous = problem.previous
    if previous is not None and _still_fit(problem, previous, range_):
        kept = _within(problem, previous.residents, solve, free)
        if _good(problem, kept, free):
            return replace(kept, provided=previous.provided)
    ready = _within(problem, _provided(problem, multiples, solve, {}), solve, free)
    if _good(problem, ready, free):
        return replace(ready, provided=demand)
    placed: dict[str, list[str]] = {}
    for placement in free.placements:
        placed.setdefault(placement.device, []).append(placement.variant)
    return replace(free, residents=_provided(problem, multiples, solve, placed), provided=demand)


def _within(problem: Problem, residents: Residents, solve: Solve, free: Allocation) -> Allocation:
    """The allocation that these residents allow."""
    found = solve(_restricted(problem, residents))
    # Pinned variants are the strategy's business, and so may stand beside the others.
    placed: dict[str, list[str]] = {}
    for placement in found.placements:
        placed.setdefault(placement.device, []).append(placement.variant)
    merged = {d.id: tuple(dict.fromkeys([*residents[d.id], *placed.get(d.id, ())])) for d in problem.devices}
    bound = max(free.bound, found.objective)
    gap = max(found.gap, (bound - found.objective) / found.objective if found.objective > 0 else 0.0)
    optimal = gap <= max(problem.gap, GAP) + PRECISION
    return replace(
        found,
        residents=merged,
        bound=bound,
        gap=gap,
        status=found.status if found.status == "empty" else "optimal" if optimal else "feasible",
        prices=free.prices,
    )


def _good(problem: Problem, plan: Allocation, free: Allocation) -> bool:
    served = sum(a.weight * plan.served[a.id] for a in problem.applications)
    most = sum(a.weight * free.served[a.id] for a in problem.applications)
    return served >= most * (1 - AS_MUCH) and plan.accuracy >= free.accuracy - AS_ACCURATE


def _room(problem: Problem) -> int:
    """How many variants at least half of the devices may hold, as far as it matters. Each multiple is a plan for all
    devices together, so there is one list for them all, and a few that differ do not choose it; those with less room
    have their part in its first multiples."""
    most = len(MULTIPLES)
    rooms = [
        most if d.max_resident is None else min(d.max_resident, most) for d in problem.devices if d.max_resident != 0
    ]
    return median_low(rooms) if rooms else most


def _unlimited(problem: Problem) -> bool:
    """Nothing limits what devices hold, and it costs nothing."""
    if any(device.max_resident is not None or device.memory_bytes is not None for device in problem.devices):
        return False
    return not any(profile.load_s for variant in problem.variants for profile in variant.profiles.values())


def _still_fit(problem: Problem, previous: Allocation, range_: tuple[float, float]) -> bool:
    if {device.id for device in problem.devices} != previous.residents.keys():
        return False
    known = {variant.id for variant in problem.variants if not variant.excluded}
    if any(variant not in known for mine in previous.residents.values() for variant in mine):
        return False
    if any(v.pinned and not any(v.id in mine for mine in previous.residents.values()) for v in problem.variants):
        return False
    for application in problem.applications:
        provided = previous.provided.get(application.id)
        if provided is None:
            return False
        now, then = max(application.demand, SMALL), max(provided, SMALL)
        if not range_[0] <= now / then <= range_[1]:
            return False
    return True


def _provided(
    problem: Problem, multiples: Sequence[float], solve: Solve, placed: Mapping[str, Sequence[str]]
) -> Residents:
    """Residents for multiples of the demand, beside what is ``placed`` already."""
    chosen = {device.id: list(placed.get(device.id, ())) for device in problem.devices}
    memory = {v.id: {kind: p.memory_bytes for kind, p in v.profiles.items()} for v in problem.variants}
    highest = multiples[0]
    for i, multiple in enumerate(multiples):
        devices = []
        for device in problem.devices:
            here, left = chosen[device.id], device.memory_bytes
            if device.max_resident is not None and len(here) >= device.max_resident:
                continue
            if left is not None:
                left -= sum(memory[variant][device.type] for variant in here)
            # What was chosen before costs nothing to use again, and leaves the room for the next multiple.
            part = None if device.max_resident is None else max(1, device.max_resident // len(multiples))
            loaded = device.loaded | frozenset(here)
            devices.append(replace(device, memory_bytes=left, max_resident=part, loaded=loaded))
        if not devices:
            break
        found = solve(_multiple(problem, devices, min(multiple, highest)))
        if i == 0:
            asked = sum(found.served.values()) + sum(found.left_out.values())
            part = sum(found.served.values()) / asked if asked > 0 else 1.0
            if part < NEARLY_ALL:
                # Beyond what the devices can do at all, variants are chosen that do nobody any good.
                highest = max(LEAST, highest * part)
                found = solve(_multiple(problem, devices, highest))
        for placement in found.placements:
            if placement.variant not in chosen[placement.device]:
                chosen[placement.device].append(placement.variant)
    fill(problem, problem.devices, chosen)
    return {device: tuple(variants) for device, variants in chosen.items()}


def _multiple(problem: Problem, devices: Sequence[Device], scale: float) -> Problem:
    return replace(
        problem,
        devices=tuple(devices),
        applications=tuple(
            replace(a, demand=max(a.demand, SMALL) * scale, floor=max(a.floor, FLOOR) if scale > 1 else a.floor)
            for a in problem.applications
        ),
        variants=tuple(replace(v, pinned=False) for v in problem.variants),
        previous=None,
    )


def _everything(problem: Problem) -> Residents:
    """All that could be in time."""
    slo_s = {application.id: application.slo_s for application in problem.applications}
    able: dict[str, list[str]] = {device.type: [] for device in problem.devices}
    for variant in problem.variants:
        if variant.application not in slo_s or variant.excluded:
            continue
        for kind, profile in variant.profiles.items():
            if kind in able and profile.points and profile.longest[0][1] <= slo_s[variant.application]:
                able[kind].append(variant.id)
    return {device.id: tuple(able[device.type]) for device in problem.devices}


def _restricted(problem: Problem, residents: Residents) -> Problem:
    """The problem in which a device can run what is resident there, and what is pinned, and nothing else.

    Devices with the same residents are of one type then, so that they can still be counted rather than named."""
    kinds: dict[tuple[str, frozenset[str]], str] = {}
    devices = []
    for device in problem.devices:
        key = (device.type, frozenset(residents[device.id]))
        kind = kinds.setdefault(key, f"{device.type}#{len(kinds)}")
        devices.append(replace(device, type=kind, loaded=device.loaded | key[1]))
    variants: list[Variant] = []
    for variant in problem.variants:
        profiles = {
            kind: variant.profiles[type]
            for (type, mine), kind in kinds.items()
            if type in variant.profiles and (variant.id in mine or variant.pinned)
        }
        variants.append(replace(variant, profiles=profiles))
    return replace(problem, devices=tuple(devices), variants=tuple(variants))
