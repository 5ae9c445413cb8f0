"""Relief: standby variants that a device may run until the next plan. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.allocation.blocking import blocking
from scheduler.allocation.capacity import dedicated_capacity, profile_on
from scheduler.allocation.problem import Allocation, Problem

#: factor by which a standby variant must be faster than the planned ones
FASTER = 1.2
#: part of a device's memory that planned and standby variants may take together: devices on the cores
#: of one box share its memory with everything else that runs there, and batches need memory of their own
MEMORY_SHARE = 0.5


def standby_variants(problem: Problem, allocation: Allocation) -> dict[str, list[str]]:
    """Return variant ids by device, in the order of loading, as far as memory allows.

    They are the residents that the strategy chose beyond those it placed, without blocking ones. Where it chooses none,
    :func:`relief` does.
    """
    blocked = blocking(problem, allocation)
    wanted: dict[str, Sequence[str]] = allocation.residents or relief(problem, allocation)
    devices = {device.id: device for device in problem.devices}
    memory = {v.id: {kind: p.memory_bytes for kind, p in v.profiles.items()} for v in problem.variants}
    placed: dict[str, set[str]] = {}
    for placement in allocation.placements:
        placed.setdefault(placement.device, set()).add(placement.variant)
    chosen: dict[str, list[str]] = {}
    for ref, variants in wanted.items():
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


def relief(problem: Problem, allocation: Allocation) -> dict[str, list[str]]:
    """Return variant ids by device that relieve the planned ones.

    For each application placed there it is the variant with the highest capacity on that device type, where that beats
    what is planned and fits beside it into memory.
    """
    devices = {device.id: device for device in problem.devices}
    slo_s = {application.id: application.slo_s for application in problem.applications}
    variants = {variant.id: variant for variant in problem.variants}
    placed: dict[str, list[str]] = {}
    for placement in allocation.placements:
        placed.setdefault(placement.device, []).append(placement.variant)
    chosen: dict[str, list[str]] = {}
    for ref, here in placed.items():
        device = devices[ref]

        def rate(variant_id: str, device=device) -> float:
            profile = profile_on(variants[variant_id], device)
            capacity = dedicated_capacity(profile, slo_s[variants[variant_id].application]) if profile else None
            return capacity.rate if capacity is not None else 0.0

        used = sum(variants[v].profiles[device.type].memory_bytes for v in here)
        for application in sorted({variants[v].application for v in here}):
            planned = max(rate(v) for v in here if variants[v].application == application)
            others = [
                v.id for v in problem.variants if v.application == application and v.id not in here and not v.excluded
            ]
            fastest = max(others, key=lambda v: (rate(v), v), default=None)
            if fastest is None or rate(fastest) <= FASTER * planned:
                continue
            needs = variants[fastest].profiles[device.type].memory_bytes
            if device.memory_bytes is None or used + needs <= device.memory_bytes:
                used += needs
                chosen.setdefault(ref, []).append(fastest)
    return chosen
