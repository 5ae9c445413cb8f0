"""Standby variants: kept loaded beside those that the plan uses, for other demand.

A device without limits holds every variant that meets the SLO there. Elsewhere residents are chosen for much more than
the present demand (:mod:`.standby_choice`): a change of demand then changes only the shares of the same residents. They
are chosen anew only when the mix of applications or the room on the devices is no longer what they were chosen for, or
when they no longer serve the demand; and where devices have no time to spare, only if that pays for the loads. Quick
residents give way to accurate ones once the demand is steady and devices have some room.
"""

from __future__ import annotations

from dataclasses import replace

from .concrete import PRECISION
from .nereus import GAP
from .problem import Allocation, ApplicationDemand, CandidateVariant, Problem
from .standby_choice import ROOM, SMALL, Residents, Solve, carried, carries, choose

#: growth of an application's demand, beside that of all demand, from which residents are of another mix
MIX = 2.0
#: multiple of the demand below which devices that had room for accurate residents have it no longer
TIGHT = 2.0
#: multiple of the demand below which a load takes time that queries need
PRESSED = 1.2
#: seconds within which such loads must pay off
PAYS_WITHIN_S = 120.0
#: part of what could be served that kept residents may leave out
SERVED_LOSS = 0.002
#: points of accuracy that they may lose where there is room
ACCURACY_LOSS = 3.0
#: multiple of a steady demand from which devices have some room for accurate residents, and the points of accuracy that
#: these must gain
SOME_ROOM, ACCURACY_GAIN = 1.4, 0.5
#: growth of all demand since the plan in force up to which it is steady, and multiple of the demand below which devices
#: have too little room for residents that were chosen for a steady one
STEADY, LITTLE_ROOM = 1.1, 1.25
#: part of what is expected below which an application starves
STARVED = 0.5


def with_standby(problem: Problem, solve: Solve, search: Solve | None = None) -> Allocation:
    """Return an allocation by ``solve`` with the residents of each device.

    Residents are placed or stand by. The answer is the first of these that serves nearly as much and as accurately as
    an unrestricted plan: the residents in force; those for multiples of the demand; those of the unrestricted plan with
    a standby fill. The bound is that of the unrestricted plan, so that the gap includes the cost of keeping residents.

    Args:
        search: a quicker strategy for multiples of the demand, whose rates are not used; None: ``solve``.
    """
    search = search or solve
    if _unlimited(problem):
        return replace(_expected_served(problem, solve)[1], residents=_everything(problem))
    problem = _expected_first(problem)
    most = carried(problem)
    problem, free = _expected_served(problem, solve)
    free = replace(free, carried=most)
    kept, previous = None, problem.previous
    if previous is not None and _still_there(problem, previous):
        kept = _within(problem, previous.residents, solve, free)
        kept = replace(kept, provided=previous.provided, steady=previous.steady)
        if _good(problem, kept, free) and _suit(problem, previous, most):
            if not _needlessly_quick(problem, previous, kept, free):
                return kept
            new = replace(_chosen_anew(problem, solve, search, free, accurate=True), steady=True)
            return new if new.accuracy > kept.accuracy + ACCURACY_GAIN else kept
    new = _chosen_anew(problem, solve, search, free)
    return new if kept is None or most >= PRESSED or kept.steady or _pays(problem, kept, new) else kept


def _expected_first(problem: Problem) -> Problem:
    """Add floors where devices carry what is expected and not all margins.

    No application's margin then comes before another one's expected demand.
    """
    if carries(problem, 1.0) or not carries(_as_expected(problem), 1.0):
        return problem
    return _with_floors(problem)


def _expected_served(problem: Problem, solve: Solve) -> tuple[Problem, Allocation]:
    """Return the problem and its plan, with floors where applications starve without.

    Fractions of devices may carry all of the demand where whole ones do not.
    """
    plan = solve(problem)
    starved = _starved(problem, plan)
    if not starved or not carries(_as_expected(problem), 1.0):
        return problem, plan
    with_floors = _with_floors(problem)
    floored = solve(with_floors)
    return (with_floors, floored) if _starved(problem, floored) < starved else (problem, plan)


def _as_expected(problem: Problem) -> Problem:
    """The problem without margins."""
    return replace(problem, applications=tuple(replace(a, demand=_expected(a)) for a in problem.applications))


def _with_floors(problem: Problem) -> Problem:
    """The problem with what is expected as floors."""
    floors = (max(a.floor, _expected(a) / a.demand) if a.demand > 0 else a.floor for a in problem.applications)
    applications = (replace(a, floor=floor) for a, floor in zip(problem.applications, floors, strict=True))
    return replace(problem, applications=tuple(applications))


def _expected(application: ApplicationDemand) -> float:
    return application.demand if application.expected is None else min(application.expected, application.demand)


def _starved(problem: Problem, plan: Allocation) -> int:
    """How many applications a plan serves far less of than is expected."""
    return sum([plan.served[a.id] < STARVED * _expected(a) for a in problem.applications])


def _good(problem: Problem, plan: Allocation, free: Allocation) -> bool:
    """Whether a plan serves nearly what an unrestricted one does.

    Where there is room it must be nearly as accurate, too. Without room neither margins count nor the plan's accuracy:
    residents are then quick, and batches choose variants.
    """
    room = free.carried >= ROOM
    most = lost = 0.0
    for a in problem.applications:
        wanted = free.served[a.id] if room else min(free.served[a.id], _expected(a))
        most += a.weight * wanted
        lost += a.weight * max(0.0, wanted - plan.served[a.id])
    accurate = not room or plan.accuracy >= free.accuracy - ACCURACY_LOSS
    return accurate and lost <= most * SERVED_LOSS


def _needlessly_quick(problem: Problem, previous: Allocation, kept: Allocation, free: Allocation) -> bool:
    """Whether residents cost accuracy that a steady demand need not lose.

    While demand grows, nobody knows how far: quick residents are ready for all that devices carry.
    """
    if not SOME_ROOM <= free.carried < ROOM or kept.accuracy + ACCURACY_GAIN >= free.accuracy:
        return False
    demand = sum(a.weight * a.demand for a in problem.applications)
    return demand <= STEADY * sum(a.weight * previous.served.get(a.id, 0.0) for a in problem.applications)


def _suit(problem: Problem, previous: Allocation, most: float) -> bool:
    """Whether residents were chosen for such a mix of applications and such room."""
    if previous.steady and most < LITTLE_ROOM:
        return False
    if most < PRESSED:
        return True
    provided = previous.provided
    then = replace(problem, applications=tuple(replace(a, demand=provided[a.id]) for a in problem.applications))
    had_room = carries(then, ROOM)
    if most <= TIGHT if had_room else most >= ROOM:
        return False
    growth = [(a.demand + SMALL) / (provided[a.id] + SMALL) for a in problem.applications]
    total = sum(a.demand + SMALL for a in problem.applications) / sum(rate + SMALL for rate in provided.values())
    return max(growth, default=1.0) <= MIX * total


def _chosen_anew(problem: Problem, solve: Solve, search: Solve, free: Allocation, accurate: bool = False) -> Allocation:
    """Return the plan with residents chosen for more than the demand.

    Where those serve less than others could, they are chosen beside those of the unrestricted plan.

    Args:
        accurate: see :func:`.standby_choice.choose`.
    """
    demand = {application.id: application.demand for application in problem.applications}
    ready = _within(problem, choose(problem, free.carried, search, {}, accurate), solve, free)
    if _good(problem, ready, free):
        return replace(ready, provided=demand)
    placed: dict[str, list[str]] = {}
    for placement in free.placements:
        placed.setdefault(placement.device, []).append(placement.variant)
    return replace(free, residents=choose(problem, free.carried, search, placed, accurate), provided=demand)


def _pays(problem: Problem, kept: Allocation, new: Allocation) -> bool:
    """Whether other residents are worth loads, in which devices serve nothing."""
    devices = {device.id: device for device in problem.devices}
    profiles = {variant.id: variant.profiles for variant in problem.variants}
    seconds = sum(
        profiles[variant][devices[id].type].load_s
        for id, variants in new.residents.items()
        for variant in variants
        if variant not in devices[id].loaded and devices[id].type in profiles[variant]
    )
    value = _value(problem, new)
    return value - _value(problem, kept) > value * seconds / (PAYS_WITHIN_S * len(devices))


def _value(problem: Problem, plan: Allocation) -> float:
    """Points/s for what is expected."""
    return plan.accuracy * sum(a.weight * min(plan.served[a.id], _expected(a)) for a in problem.applications)


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
        carried=free.carried,
    )


def _unlimited(problem: Problem) -> bool:
    """Whether devices have no limits and loads take no time."""
    if any(device.max_resident is not None or device.memory_bytes is not None for device in problem.devices):
        return False
    return not any(profile.load_s for variant in problem.variants for profile in variant.profiles.values())


def _still_there(problem: Problem, previous: Allocation) -> bool:
    """Whether a plan's devices, variants and applications are still the problem's."""
    if {device.id for device in problem.devices} != previous.residents.keys():
        return False
    if any(application.id not in previous.provided for application in problem.applications):
        return False
    present = {variant.id for variant in problem.variants if not variant.excluded}
    if any(variant not in present for mine in previous.residents.values() for variant in mine):
        return False
    return not any(v.pinned and not any(v.id in mine for mine in previous.residents.values()) for v in problem.variants)


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
