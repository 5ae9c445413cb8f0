"""Devices that the MILP need not tell apart: same type, availability, memory and residents allowed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .problem import Device


@dataclass(frozen=True)
class Group:
    """Identical devices, in the problem's order; only what they have loaded may differ."""

    devices: tuple[Device, ...]

    @property
    def one(self) -> Device:
        """A device that stands for all of them."""
        return self.devices[0]

    def __len__(self) -> int:
        return len(self.devices)

    def by_loaded(self) -> dict[frozenset[str], int]:
        """How many of the devices have exactly this set of variants loaded."""
        counts: dict[frozenset[str], int] = {}
        for device in self.devices:
            counts[device.loaded] = counts.get(device.loaded, 0) + 1
        return counts


def grouped(devices: Iterable[Device]) -> list[Group]:
    """Groups of identical devices, in order of first appearance. Devices that may host nothing are left away."""
    groups: dict[tuple, list[Device]] = {}
    for device in devices:
        if usable(device):
            key = (device.type, device.available, device.memory_bytes, device.max_resident)
            groups.setdefault(key, []).append(device)
    return [Group(tuple(members)) for members in groups.values()]


def singles(devices: Iterable[Device]) -> list[Group]:
    """Each device a group of its own."""
    return [Group((device,)) for device in devices if usable(device)]


def usable(device: Device) -> bool:
    """Whether anything may be placed there at all."""
    return device.available > 0 and (device.max_resident is None or device.max_resident > 0)
