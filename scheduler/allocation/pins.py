"""Pinned variants: each is resident on at least one device, where possible.

Those that serve demand are resident already. Others stand by, with no rate and no time share, where memory allows;
otherwise memory is reserved for them and the plan is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .capacity import profile_on
from .disaggregation import DeviceContent, PlannedResident
from .groups import usable
from .problem import Allocation, CandidateVariant, DeviceResources, Placement, Problem


def pin(problem: Problem, hosts: Sequence[tuple[DeviceResources, DeviceContent]]) -> list[str]:
    """Add each pinned variant that is not resident to a device where it fits.

    This is one that has it loaded, if possible.

    Returns:
        Ids of those that fit nowhere now, though a device could run them.
    """
    placed = {resident.variant.id for _, content in hosts for resident in content.residents}
    missing = []
    for variant in problem.variants:
        if not variant.pinned or variant.excluded or variant.id in placed:
            continue
        able = [host for host in hosts if profile_on(variant, host[0]) is not None]
        for device, content in sorted(able, key=lambda host: variant.id not in host[0].loaded):
            if _fits(variant, device, content):
                profile = variant.profiles[device.type]
                content.residents.append(PlannedResident(variant, 0.0, profile.points[0][0], 0.0, profile.memory_bytes))
                break
        else:
            if able:
                missing.append(variant.id)
    return missing


def with_pinned(problem: Problem, allocation: Allocation) -> Allocation:
    """Return the allocation, with its missing pinned variants standing by.

    They stand by where they fit.
    """
    placed = {placement.variant for placement in allocation.placements}
    if all(v.id in placed for v in problem.variants if v.pinned and not v.excluded):
        return allocation
    hosts = contents_of(problem, allocation)
    pin(problem, hosts)
    placements, moves = placements_of(hosts)
    status = "optimal" if allocation.status == "empty" and placements else allocation.status
    return replace(allocation, placements=placements, moves=moves, status=status)


def contents_of(problem: Problem, allocation: Allocation) -> list[tuple[DeviceResources, DeviceContent]]:
    """The allocation's residents by usable device, in the problem's order."""
    variants = {v.id: v for v in problem.variants}
    hosts = [
        (device, DeviceContent(allocation.revisit_s.get(device.id, 0.0)))
        for device in problem.devices
        if usable(device)
    ]
    by_id = {device.id: (device, content) for device, content in hosts}
    for p in allocation.placements:
        device, content = by_id[p.device]
        memory = variants[p.variant].profiles[device.type].memory_bytes
        content.residents.append(PlannedResident(variants[p.variant], p.rate, p.max_batch, p.time_share, memory))
    return hosts


def placements_of(hosts: Sequence[tuple[DeviceResources, DeviceContent]]) -> tuple[tuple[Placement, ...], int]:
    """Return placements device by device, and the number of variants to load.

    A device's residents keep their order: working ones come before standby ones, which :func:`pin` appends.
    """
    made = []
    moves = 0
    for device, content in hosts:
        for resident in content.residents:
            made.append(Placement(device.id, resident.variant.id, resident.rate, resident.batch, resident.share))
            moves += resident.variant.id not in device.loaded
    return tuple(made), moves


def _fits(variant: CandidateVariant, device: DeviceResources, content: DeviceContent) -> bool:
    if device.max_resident is not None and len(content.residents) >= device.max_resident:
        return False
    memory = variant.profiles[device.type].memory_bytes + sum(resident.memory_bytes for resident in content.residents)
    return device.memory_bytes is None or memory <= device.memory_bytes


def reservations(problem: Problem, pinned: Sequence[str]) -> dict[str, DeviceResources]:
    """Reserve memory for the pinned variants.

    Each gets it on a device that has it loaded, else on the one with the most residents allowed, then with the most
    memory (no limit counts as 0).

    Returns:
        By id, the devices less what is reserved (memory and residents).
    """
    variants = {v.id: v for v in problem.variants}
    devices = {d.id: d for d in problem.devices if usable(d)}
    changed: dict[str, DeviceResources] = {}
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
