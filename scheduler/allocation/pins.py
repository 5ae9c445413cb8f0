"""Pinned variants: each is resident on one device at least, wherever that is possible.

One that the plan works with is. Others stand by, with no rate and no time, where there is room; where there is none,
room is reserved for them before the plan is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .capacity import profile_on
from .disaggregation import Bin, Seat
from .groups import usable
from .problem import Allocation, Device, Placement, Problem, Variant


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


def with_pinned(problem: Problem, allocation: Allocation) -> Allocation:
    """The allocation, and pinned variants that it leaves away standing by where there is room."""
    resident = {placement.variant for placement in allocation.placements}
    if all(v.id in resident for v in problem.variants if v.pinned and not v.excluded):
        return allocation
    hosts = bins_of(problem, allocation)
    pin(problem, hosts)
    placements, moves = placements_of(hosts)
    status = "optimal" if allocation.status == "empty" and placements else allocation.status
    return replace(allocation, placements=placements, moves=moves, status=status)


def bins_of(problem: Problem, allocation: Allocation) -> list[tuple[Device, Bin]]:
    """The allocation's residents by usable device, in the problem's order."""
    variants = {v.id: v for v in problem.variants}
    hosts = [(device, Bin(allocation.turn_gap_s.get(device.id, 0.0))) for device in problem.devices if usable(device)]
    by_id = {device.id: (device, bin_) for device, bin_ in hosts}
    for p in allocation.placements:
        device, bin_ = by_id[p.device]
        memory = variants[p.variant].profiles[device.type].memory_bytes
        bin_.seats.append(Seat(variants[p.variant], p.rate, p.max_batch, p.time_share, memory))
    return hosts


def placements_of(hosts: Sequence[tuple[Device, Bin]]) -> tuple[tuple[Placement, ...], int]:
    """Device by device, what works before what stands by, and how many variants have to be loaded."""
    made = []
    moves = 0
    for device, bin_ in hosts:
        for seat in bin_.seats:
            made.append(Placement(device.id, seat.variant.id, seat.rate, seat.batch, seat.share))
            moves += seat.variant.id not in device.loaded
    return tuple(made), moves


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
