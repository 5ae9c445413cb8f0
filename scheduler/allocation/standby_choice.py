"""The choice of residents for more than the present demand. Pure.

Devices that could carry a multiple of the demand get residents of a plan for that multiple, then of one for the present
demand, which are accurate. Devices without such room get those of a plan for all that they carry alone, unless the
demand is steady: each then serves few applications, with quick variants. The rest is filled for bursts of single
applications, with variants as quick as the price of time asks for half way (geometrically) to all that the devices
carry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median_low

from .groups import grouped
from .nereus import relaxed
from .problem import Allocation, DeviceResources, Problem
from .standby_fill import fill_with_standby

#: largest multiple of the demand that residents are chosen for, where the median device may hold 1, 2 or more variants
HIGHEST = (4.0, 6.0, 8.0)
#: ratio to which the largest multiple that devices carry is found
CARRIED_STEP = 1.05
#: share of the demand from which it counts as carried whole
NEARLY_ALL = 0.99
#: floor of every application in plans for multiples, as a share of its demand
FLOOR = 0.5
#: demands below this (items/s) count as equal: ratios of small rates are noise
SMALL = 5.0
#: multiple of the demand from which devices have room for accurate variants beside those for the multiple
ROOM = 2.5
#: part of a device's places that each plan may then fill
PART = 3

Solve = Callable[[Problem], Allocation]
Residents = Mapping[str, tuple[str, ...]]


def carried(problem: Problem) -> float:
    """Return the largest multiple of the demand that the devices carry whole.

    It is at least 1, and at most :data:`HIGHEST`. Beyond it a plan would choose some applications and drop others.
    """
    low, high = 1.0, HIGHEST[_typical_limit(problem) - 1]
    if carries(problem, high):
        return high
    while high / low > CARRIED_STEP:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if carries(problem, middle) else (low, middle)
    return low


def carries(problem: Problem, multiple: float) -> bool:
    """Whether the devices carry a multiple of the demand, by the relaxed problem."""
    scaled = _scaled(problem, problem.devices, multiple)
    found = relaxed(scaled)
    return found is not None and found.served >= NEARLY_ALL * sum(a.weight * a.demand for a in scaled.applications)


def choose(
    problem: Problem, most: float, solve: Solve, placed: Mapping[str, Sequence[str]], accurate: bool = False
) -> Residents:
    """Return residents beside those already ``placed``, by device.

    Args:
        most: the multiple of the demand that the devices carry.
        solve: makes the plans for multiples.
        accurate: choose as where devices have room.
    """
    chosen = {device.id: list(placed.get(device.id, ())) for device in problem.devices}
    memory = {v.id: {kind: p.memory_bytes for kind, p in v.profiles.items()} for v in problem.variants}
    multiples, part = ((most, 1.0), PART) if accurate or most >= ROOM else ((most,), 1)
    for multiple in multiples:
        devices = []
        for device in problem.devices:
            here, left, places = chosen[device.id], device.memory_bytes, device.max_resident
            if places is not None and len(here) >= places:
                continue
            if left is not None:
                left -= sum(memory[variant][device.type] for variant in here)
            if places is not None:
                places = min(places - len(here), max(1, places // part))
            # Variants chosen before are used again at no cost, which leaves memory for the next multiple.
            loaded = device.loaded | frozenset(here)
            devices.append(replace(device, memory_bytes=left, max_resident=places, loaded=loaded))
        if not devices:
            break
        for placement in solve(_scaled(problem, devices, multiple)).placements:
            if placement.variant not in chosen[placement.device]:
                chosen[placement.device].append(placement.variant)
    fill_with_standby(problem, problem.devices, chosen, _prices(problem, math.sqrt(most)))
    return {device: tuple(variants) for device, variants in chosen.items()}


def _prices(problem: Problem, multiple: float) -> dict[str, float]:
    """Points for a second of a device's time at a multiple of the demand, by type."""
    found = relaxed(_scaled(problem, problem.devices, multiple))
    prices: dict[str, float] = {}
    if found is not None:
        for group, price in zip(grouped(problem.devices), found.prices.tolist(), strict=True):
            prices[group.one.type] = max(price, prices.get(group.one.type, 0.0))
    return prices


def _scaled(problem: Problem, devices: Sequence[DeviceResources], multiple: float) -> Problem:
    return replace(
        problem,
        devices=tuple(devices),
        applications=tuple(
            replace(a, demand=max(a.demand, SMALL) * multiple, floor=max(a.floor, FLOOR) if multiple > 1 else a.floor)
            for a in problem.applications
        ),
        variants=tuple(replace(v, pinned=False) for v in problem.variants),
        previous=None,
    )


def _typical_limit(problem: Problem) -> int:
    """Return how many variants the median device may hold, as far as it matters."""
    most = len(HIGHEST)
    limits = [
        most if d.max_resident is None else min(d.max_resident, most) for d in problem.devices if d.max_resident != 0
    ]
    return median_low(limits) if limits else most
