"""Standby variants as the devices' memory allows. Pure."""

from __future__ import annotations

from collections.abc import Collection

from scheduler.allocation.blocking import blocking
from scheduler.allocation.problem import Allocation, DeviceResources, Problem
from workers.dispatch.standby import MEMORY_SHARE


def standby_variants(problem: Problem, allocation: Allocation, requested: Collection[int] = ()) -> dict[str, list[str]]:
    """Return variant ids by device, in the order of loading, as far as memory allows.

    They are the residents that the strategy chose beyond those it placed, without blocking ones. Requested variants
    that no device would have loaded come last, on a device that has them loaded already, else on one with few variants.
    """
    blocked, profiles = blocking(problem, allocation), {v.id: v.profiles for v in problem.variants}
    here: dict[str, set[str]] = {device.id: set() for device in problem.devices}
    for placement in allocation.placements:
        here[placement.device].add(placement.variant)
    used = {d.id: sum(profiles[variant][d.type].memory_bytes for variant in here[d.id]) for d in problem.devices}
    chosen: dict[str, list[str]] = {}

    def fits(device: DeviceResources, variant: str) -> bool:
        loaded = here[device.id]
        if variant in loaded or variant in blocked[device.id] or device.type not in profiles[variant]:
            return False
        if device.max_resident is not None and len(loaded) >= device.max_resident:
            return False
        needed = used[device.id] + profiles[variant][device.type].memory_bytes
        return device.memory_bytes is None or needed <= MEMORY_SHARE * device.memory_bytes

    def choose(device: DeviceResources, variant: str) -> None:
        here[device.id].add(variant)
        used[device.id] += profiles[variant][device.type].memory_bytes
        chosen.setdefault(device.id, []).append(variant)

    for device in problem.devices:
        for variant in allocation.residents.get(device.id, ()):
            # A smaller one later in the order may still fit.
            if fits(device, variant):
                choose(device, variant)
    asked_for = set(map(str, requested))
    for variant in problem.variants:
        if variant.id not in asked_for or variant.excluded or any(variant.id in loaded for loaded in here.values()):
            continue
        able = [
            (variant.id not in device.loaded, len(here[device.id]), device.id, device)
            for device in problem.devices
            if fits(device, variant.id)
        ]
        if able:
            choose(min(able)[-1], variant.id)
    return chosen
