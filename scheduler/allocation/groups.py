"""Device groups: devices that strategies do not tell apart.

They have the same type, availability, memory, residents allowed, cost and cores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .problem import DeviceResources


@dataclass(frozen=True)
class IdenticalDevices:
    devices: tuple[DeviceResources, ...]

    @property
    def one(self) -> DeviceResources:
        return self.devices[0]

    def __len__(self) -> int:
        return len(self.devices)


def grouped(devices: Iterable[DeviceResources]) -> list[IdenticalDevices]:
    groups: dict[tuple, list[DeviceResources]] = {}
    for device in devices:
        if usable(device):
            of_type = device.type, device.memory_bytes, device.max_resident, device.cost, device.cores
            groups.setdefault((*of_type, device.available), []).append(device)
    return [IdenticalDevices(tuple(members)) for members in groups.values()]


def usable(device: DeviceResources) -> bool:
    return device.available > 0 and (device.max_resident is None or device.max_resident > 0)
