"""Pinned variants: each is resident on one device at least, wherever that is possible.

One that the plan works with is. Others stand by, with no rate and no time, where there is room; where there is none,
room is reserved for them before the plan is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .capacity import profile_on
from .deal import Bin, Seat
from .groups import usable
from .problem import Device, Problem, Variant


def pin(problem: Problem, hosts: Sequence[tuple[Device, Bin]]) -> list[str]:
    """Let each pinned variant that works nowhere stand by on one device with room for it, one that has it loaded if
    there is one. Returns those for which there is no room now, though it could run on one of the devices."""
    resident = {seat.variant.id for _, bin_ in hosts for seat in bin_.seats}
    missing = []
    for variant in problem.variants:
        if not variant.pinned or variant.excluded or variant.id in resident:
            continue
        able = [host for host in hosts if profile_on(variant, host[0]) is not None]
        for device, bin_ in sorted(able, key=lambda host: variant.id not in host[0].loaded):
            if _fits(variant, device, bin_):
                profile = variant.profiles[device.type]
                bin_.seats.append(Seat(variant, 0.0, profile.points[0][0], 0.0, profile.memory_bytes))
                break
        else:
            if able:
                missing.append(variant.id)
    return missing


def _fits(variant: Variant, device: Device, bin_: Bin) -> bool:
    if device.max_resident is not None and len(bin_.seats) >= device.max_resident:
        return False
    memory = variant.profiles[device.type].memory_bytes + sum(seat.memory_bytes for seat in bin_.seats)
    return device.memory_bytes is None or memory <= device.memory_bytes


def reservations(problem: Problem, pinned: Sequence[str]) -> dict[str, Device]:
    """Devices, by id, less the room of the pinned variants, each on the device that has it loaded or most room."""
    variants = {v.id: v for v in problem.variants}
    devices = {d.id: d for d in problem.devices if usable(d)}
    changed: dict[str, Device] = {}
    for name in pinned:
        variant = variants[name]
        able = [d for d in devices.values() if usable(d) and profile_on(variant, d) is not None]
        if not able:
            continue
        device = max(able, key=lambda d: (name in d.loaded, d.max_resident or 0, d.memory_bytes or 0))
        memory, resident = device.memory_bytes, device.max_resident
        less = replace(
            device,
            memory_bytes=None if memory is None else memory - variant.profiles[device.type].memory_bytes,
            max_resident=None if resident is None else resident - 1,
        )
        devices[device.id] = changed[device.id] = less
    return changed
