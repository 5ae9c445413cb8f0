"""Standby variants as the devices' memory allows. Pure."""

from __future__ import annotations

from scheduler.allocation.blocking import blocking
from scheduler.allocation.problem import Allocation, Problem

#: part of a device's memory that planned and standby variants may take together: devices on the cores
#: of one box share its memory with everything else that runs there, and batches need memory of their own
MEMORY_SHARE = 0.5


def standby_variants(problem: Problem, allocation: Allocation) -> dict[str, list[str]]:
    """Return variant ids by device, in the order of loading, as far as memory allows.

    They are the residents that the strategy chose beyond those it placed, without blocking ones.
    """
    blocked = blocking(problem, allocation)
    devices = {device.id: device for device in problem.devices}
    memory = {v.id: {kind: p.memory_bytes for kind, p in v.profiles.items()} for v in problem.variants}
    placed: dict[str, set[str]] = {}
    for placement in allocation.placements:
        placed.setdefault(placement.device, set()).add(placement.variant)
    chosen: dict[str, list[str]] = {}
    for ref, variants in allocation.residents.items():
        device, here = devices[ref], placed.get(ref, set())
        used = sum(memory[variant][device.type] for variant in here)
        for variant in dict.fromkeys(variants):
            needs = memory[variant].get(device.type)
            if variant in here or needs is None or variant in blocked[ref]:
                continue
            # A smaller one later in the order may still fit.
            if device.memory_bytes is None or used + needs <= MEMORY_SHARE * device.memory_bytes:
                used += needs
                chosen.setdefault(ref, []).append(variant)
    return chosen
