"""Pinned variants: each is resident on at least one device, where possible.

Those that serve demand are resident already. Others stand by, with no rate and no time share, where memory allows;
otherwise memory is reserved for them and the plan is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .capacity import profile_on
from .groups import usable
from .problem import Allocation, Placement, Problem


def with_pinned(problem: Problem, allocation: Allocation) -> tuple[Allocation, list[str]]:
    """Let each pinned variant that is not placed stand by; and those that fit nowhere now, though some could run."""
    placed = {placement.variant for placement in allocation.placements}
    pinned = [v for v in problem.variants if v.pinned and not v.excluded and v.id not in placed]
    variants = {v.id: v for v in problem.variants}
    by_device: dict[str, list[Placement]] = {device.id: [] for device in problem.devices}
    for placement in allocation.placements:
        by_device[placement.device].append(placement)
    missing = []
    for variant in pinned:
        able = [device for device in problem.devices if usable(device) and profile_on(variant, device) is not None]
        for device in sorted(able, key=lambda device: variant.id not in device.loaded):
            here = by_device[device.id]
            profile = variant.profiles[device.type]
            memory = profile.memory_bytes + sum(variants[p.variant].profiles[device.type].memory_bytes for p in here)
            room = device.max_resident is None or len(here) < device.max_resident
            if room and (device.memory_bytes is None or memory <= device.memory_bytes):
                here.append(Placement(device.id, variant.id, 0.0, profile.points[0][0], 0.0))
                break
        else:
            if able:
                missing.append(variant.id)
    placements = tuple([p for device in problem.devices for p in by_device[device.id]])
    status = "optimal" if allocation.status == "empty" and placements else allocation.status
    return replace(allocation, placements=placements, status=status), missing


def with_reservations(problem: Problem, pinned: Sequence[str]) -> Problem:
    """Reserve memory and a place for each of these pinned variants.

    Each gets it on a device that has it loaded, else on the one with the most residents allowed, then with the most
    memory (no limit counts as 0).
    """
    variants = {v.id: v for v in problem.variants}
    devices = {d.id: d for d in problem.devices}
    for name in pinned:
        variant = variants[name]
        able = [d for d in devices.values() if usable(d) and profile_on(variant, d) is not None]
        if not able:
            continue
        device = max(able, key=lambda d: (name in d.loaded, d.max_resident or 0, d.memory_bytes or 0))
        memory, resident = device.memory_bytes, device.max_resident
        devices[device.id] = replace(
            device,
            memory_bytes=None if memory is None else memory - variant.profiles[device.type].memory_bytes,
            max_resident=None if resident is None else resident - 1,
        )
    return replace(problem, devices=tuple(devices.values()))
