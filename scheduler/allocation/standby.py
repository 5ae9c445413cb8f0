"""Standby variants: kept loaded beside those that the plan uses, for other demand.

A device without limits holds every variant that meets the SLO there. Elsewhere the remaining memory is filled by plans
for multiples of the demand, one variant a device each time: what a burst needs is loaded before it arrives, and a
change of demand changes only the shares of the same residents. Residents are chosen anew only when the demand leaves
the range that they were chosen for, since a loading device serves nothing and evicts what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median_low

from .concrete import PRECISION
from .nereus import GAP
from .problem import Allocation, CandidateVariant, DeviceResources, Problem
from .standby_fill import fill_with_standby

#: multiples of the demand to plan for, the most important first, where a device may hold 1, 2 or more variants; the
#: first is lowered to the devices' capacity, but not below :data:`LEAST`
MULTIPLES = ((4.0,), (6.0, 1.5), (8.0, 1.0, 3.0))
#: smallest first multiple
LEAST = 1.5
#: share of the demand from which a plan counts as serving it
NEARLY_ALL = 0.99
#: floor of every application in plans for multiples, as a share of its demand
FLOOR = 0.5
#: residents are kept while each application's demand is within these multiples of what they were chosen for, where a
#: device may hold 1, 2 or more variants
RANGES = ((1 / 2.5, 1.6), (1 / 4, 2.5), (1 / 5, 3.0))
#: demands below this (items/s) count as equal: ratios of small rates are noise
SMALL = 5.0

#: part of what could be served that kept residents may leave out
SERVED_LOSS = 0.002
#: points of accuracy that kept residents may lose
ACCURACY_LOSS = 3.0

Solve = Callable[[Problem], Allocation]
Residents = Mapping[str, tuple[str, ...]]


def with_standby(problem: Problem, solve: Solve, search: Solve | None = None) -> Allocation:
    """Return an allocation by ``solve`` with the residents of each device.

    Residents are placed or stand by. The answer is the first of these that serves nearly as much and as accurately as
    an unrestricted plan: the residents in force; those for multiples of the demand; those of the unrestricted plan with
    a standby fill. The bound is that of the unrestricted plan, so that the gap includes the cost of keeping residents.

    Args:
        search: a quicker strategy for multiples of the demand, whose rates are not used; None: ``solve``.
    """
    search = search or solve
    free = solve(problem)
    if _unlimited(problem):
        return replace(free, residents=_everything(problem))
    limit = _typical_limit(problem)
    multiples, range_ = MULTIPLES[limit - 1], RANGES[limit - 1]
    demand = {application.id: application.demand for application in problem.applications}
    previous = problem.previous
    if previous is not None and _still_fit(problem, previous, range_):
        kept = _within(problem, previous.residents, solve, free)
        if _good(problem, kept, free):
            return replace(kept, provided=previous.provided)
    ready = _within(problem, _provided(problem, multiples, search, {}), solve, free)
    if _good(problem, ready, free):
        return replace(ready, provided=demand)
    placed: dict[str, list[str]] = {}
    for placement in free.placements:
        placed.setdefault(placement.device, []).append(placement.variant)
    return replace(free, residents=_provided(problem, multiples, search, placed), provided=demand)


def _within(problem: Problem, residents: Residents, solve: Solve, free: Allocation) -> Allocation:
    """The best allocation with these residents only."""
    found = solve(_restricted(problem, residents))
    # The strategy places pinned variants itself, so they may be on a device beside its residents.
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
    return served >= most * (1 - SERVED_LOSS) and plan.accuracy >= free.accuracy - ACCURACY_LOSS


def _typical_limit(problem: Problem) -> int:
    """Return the number of variants that the median device may hold.

    It is at most as long as the longest list of multiples.

    Each multiple is one plan for all devices, so the list is chosen for all of them; devices that hold fewer variants
    take part in its first multiples.
    """
    most = len(MULTIPLES)
    limits = [
        most if d.max_resident is None else min(d.max_resident, most) for d in problem.devices if d.max_resident != 0
    ]
    return median_low(limits) if limits else most


def _unlimited(problem: Problem) -> bool:
    """Whether devices have no limits and loads take no time."""
    if any(device.max_resident is not None or device.memory_bytes is not None for device in problem.devices):
        return False
    return not any(profile.load_s for variant in problem.variants for profile in variant.profiles.values())


def _still_fit(problem: Problem, previous: Allocation, range_: tuple[float, float]) -> bool:
    if {device.id for device in problem.devices} != previous.residents.keys():
        return False
    present = {variant.id for variant in problem.variants if not variant.excluded}
    if any(variant not in present for mine in previous.residents.values() for variant in mine):
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
    """Residents for multiples of the demand, beside those already ``placed``."""
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
            # Variants chosen before are used again at no cost, which leaves memory for the next multiple.
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
                # Planning beyond the devices' capacity would choose useless variants.
                highest = max(LEAST, highest * part)
                found = solve(_multiple(problem, devices, highest))
        for placement in found.placements:
            if placement.variant not in chosen[placement.device]:
                chosen[placement.device].append(placement.variant)
    fill_with_standby(problem, problem.devices, chosen)
    return {device: tuple(variants) for device, variants in chosen.items()}


def _multiple(problem: Problem, devices: Sequence[DeviceResources], scale: float) -> Problem:
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
    """Every variant that meets its SLO on the device's type, by device."""
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
    """The problem restricted to residents and pinned variants on each device.

    Devices with the same residents become one type, so that they can still be counted."""
    kinds: dict[tuple[str, frozenset[str]], str] = {}
    devices = []
    for device in problem.devices:
        key = (device.type, frozenset(residents[device.id]))
        kind = kinds.setdefault(key, f"{device.type}#{len(kinds)}")
        devices.append(replace(device, type=kind, loaded=device.loaded | key[1]))
    variants: list[CandidateVariant] = []
    for variant in problem.variants:
        profiles = {
            kind: variant.profiles[type]
            for (type, mine), kind in kinds.items()
            if type in variant.profiles and (variant.id in mine or variant.pinned)
        }
        variants.append(replace(variant, profiles=profiles))
    return replace(problem, devices=tuple(devices), variants=tuple(variants))
