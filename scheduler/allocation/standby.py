"""Standby variants: kept loaded beside those that the plan uses, for other demand.

A device without limits holds every variant that meets the SLO there. Elsewhere residents are those of a plan for all
that the devices carry, and what the fill adds (:mod:`.standby_fill`); where these do not suit the demand, the plan's
own come first. A change of demand then changes only the shares of the same residents. They stay while they suit, and
devices have half (geometrically) of the room left for which they were chosen, or too little for loads.

Residents suit if they serve nearly as much as others would, and nearly as accurately, where there is room.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from .concrete import PRECISION
from .groups import grouped
from .nereus import GAP, carried, relaxed, solve, start, with_small_served
from .problem import Allocation, ApplicationDemand, CandidateVariant, Placement, Problem
from .standby_fill import fill_with_standby

#: largest multiple of the demand that residents are chosen for
HIGHEST = 4.0
#: floor of every application in plans for multiples, as a share of its demand
FLOOR = 0.5
#: demands below this (items/s) count as equal: ratios of small rates are noise
SMALL = 5.0
#: part of what others would serve that residents may leave out, and points of accuracy that they may lose
SERVED_LOSS, ACCURACY_LOSS = 0.002, 1.0
#: multiples of the demand below which devices have too little room for accurate residents, and for loads
ROOM, PRESSED = 2.5, 1.4

Residents = Mapping[str, tuple[str, ...]]


def with_standby(problem: Problem) -> Allocation:
    """Return an allocation with the residents of each device.

    The bound is that of plans with any residents, so that the gap includes the cost of keeping them.
    """
    problem, plan = _expected_served(with_small_served(problem))
    if _unlimited(problem):
        return replace(plan, residents=_everything(problem))
    multiple = min(HIGHEST, max(1.0, carried(problem)))
    plan = replace(plan, carried=multiple, ready_for=multiple)
    previous = problem.previous
    stays = previous is not None and _still_there(problem, previous)
    if stays and (multiple >= math.sqrt(previous.ready_for) or multiple < PRESSED):
        kept = _within(problem, previous.residents, plan)
        if _good(problem, kept, plan):
            return replace(kept, ready_for=previous.ready_for)
    ready = _within(problem, _chosen(problem, multiple, ()), plan)
    if _good(problem, ready, plan):
        return replace(ready, ready_for=multiple)
    return replace(plan, residents=_chosen(problem, multiple, plan.placements))


def _expected_served(problem: Problem) -> tuple[Problem, Allocation]:
    """Return the problem and its plan, with floors if it left out what is expected.

    No application's margin then comes before what another one is expected to need, if devices carry all of that.
    """
    plan = solve(problem)
    if all(plan.served[a.id] >= (1 - SERVED_LOSS) * _expected(a) for a in problem.applications):
        return problem, plan
    expected = tuple([replace(a, demand=_expected(a)) for a in problem.applications])
    if carried(replace(problem, applications=expected)) < 1:
        return problem, plan
    applications = [
        replace(a, floor=max(a.floor, _expected(a) / a.demand)) if a.demand > 0 else a for a in problem.applications
    ]
    floored = replace(problem, applications=tuple(applications))
    other = solve(floored)
    kept = ((a.id, (1 - SERVED_LOSS) * min(plan.served[a.id], a.floor * a.demand)) for a in problem.applications)
    return (floored, other) if all(other.served[name] >= rate for name, rate in kept) else (problem, plan)


def _expected(application: ApplicationDemand) -> float:
    return application.demand if application.expected is None else min(application.expected, application.demand)


def _good(problem: Problem, kept: Allocation, plan: Allocation) -> bool:
    """Whether residents suit: they serve nearly as much as the plan, as accurately.

    Margins count as far as devices have room for them: nothing is loaded for them in the middle of a burst.
    """
    most = plan.carried if plan.carried >= PRESSED else 1.0
    wanted = lost = 0.0
    for a in problem.applications:
        served = min(plan.served[a.id], most * _expected(a))
        short = max(0.0, served - kept.served[a.id])
        if a.floor > 0 and short > SERVED_LOSS * served:
            return False
        wanted += a.weight * served
        lost += a.weight * short
    accurate = plan.carried < ROOM or kept.accuracy >= plan.accuracy - ACCURACY_LOSS
    return accurate and lost <= SERVED_LOSS * wanted


def _chosen(problem: Problem, multiple: float, placed: Iterable[Placement]) -> Residents:
    chosen: dict[str, list[str]] = {device.id: [] for device in problem.devices}
    for placement in placed:
        chosen[placement.device].append(placement.variant)
    for placement in start(_beside(problem, multiple, chosen)).placements:
        if placement.variant not in chosen[placement.device]:
            chosen[placement.device].append(placement.variant)
    fill_with_standby(problem, chosen, _prices(problem, math.sqrt(multiple)))
    return {device: tuple(variants) for device, variants in chosen.items()}


def _beside(problem: Problem, multiple: float, chosen: Mapping[str, list[str]]) -> Problem:
    """A multiple of the demand beside residents, which full devices have alone."""
    memory = {v.id: {kind: p.memory_bytes for kind, p in v.profiles.items()} for v in problem.variants}
    devices, only = [], {}
    for device in problem.devices:
        here, left, places = chosen[device.id], device.memory_bytes, device.max_resident
        # Variants chosen before are used again at no cost.
        device = replace(device, loaded=device.loaded | {*here})
        if places is not None and len(here) >= places > 0:
            only[device.id] = here
        else:
            if left is not None:
                left -= sum(memory[variant][device.type] for variant in here)
            places = None if places is None else places - len(here)
            device = replace(device, memory_bytes=left, max_resident=places)
        devices.append(device)
    return _restricted(replace(_scaled(problem, multiple), devices=tuple(devices)), only)


def _scaled(problem: Problem, multiple: float) -> Problem:
    return replace(
        problem,
        applications=tuple(
            replace(a, demand=max(a.demand, SMALL) * multiple, floor=max(a.floor, FLOOR)) for a in problem.applications
        ),
        variants=tuple(replace(v, pinned=False) for v in problem.variants),
        previous=None,
    )


def _prices(problem: Problem, multiple: float) -> dict[str, float]:
    found = relaxed(_scaled(problem, multiple))
    prices: dict[str, float] = {}
    if found is not None:
        for group, price in zip(grouped(problem.devices), found.prices.tolist(), strict=True):
            prices[group.one.type] = max(price, prices.get(group.one.type, 0.0))
    return prices


def _within(problem: Problem, residents: Residents, free: Allocation) -> Allocation:
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
    if any(device.max_resident is not None or device.memory_bytes is not None for device in problem.devices):
        return False
    return not any(profile.load_s for variant in problem.variants for profile in variant.profiles.values())


def _still_there(problem: Problem, previous: Allocation) -> bool:
    if {device.id for device in problem.devices} != previous.residents.keys():
        return False
    if any(a.id not in previous.served for a in problem.applications):
        return False
    present = {variant.id for variant in problem.variants if not variant.excluded}
    if any(variant not in present for mine in previous.residents.values() for variant in mine):
        return False
    return not any(v.pinned and not any(v.id in mine for mine in previous.residents.values()) for v in problem.variants)


def _everything(problem: Problem) -> Residents:
    slo_s = {application.id: application.slo_s for application in problem.applications}
    able: dict[str, list[str]] = {device.type: [] for device in problem.devices}
    for variant in problem.variants:
        if variant.application not in slo_s or variant.excluded:
            continue
        for kind, profile in variant.profiles.items():
            if kind in able and profile.points and profile.longest[0][1] <= slo_s[variant.application]:
                able[kind].append(variant.id)
    return {device.id: tuple(able[device.type]) for device in problem.devices}


def _restricted(problem: Problem, residents: Mapping[str, Collection[str]]) -> Problem:
    """The problem restricted to residents and pins, on devices that have residents.

    Devices with the same residents become one type, so that they can still be counted.
    """
    kinds: dict[tuple[str, frozenset[str] | None], str] = {}
    devices = []
    for device in problem.devices:
        mine = frozenset(residents[device.id]) if device.id in residents else None
        kind = kinds.setdefault((device.type, mine), device.type if mine is None else f"{device.type}#{len(kinds)}")
        devices.append(replace(device, type=kind, loaded=device.loaded | (mine or frozenset())))
    variants: list[CandidateVariant] = []
    for variant in problem.variants:
        profiles = {
            kind: variant.profiles[type]
            for (type, mine), kind in kinds.items()
            if type in variant.profiles and (mine is None or variant.id in mine or variant.pinned)
        }
        variants.append(replace(variant, profiles=profiles))
    return replace(problem, devices=tuple(devices), variants=tuple(variants))
