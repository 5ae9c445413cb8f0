"""Addresses at which cores on other boxes reach this node's executors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec

from workers.addresses import Address
from workers.protocol.specs import DeviceInfo
from workers.settings import Settings, SettingsError


def listening(
    settings: Settings, devices: Iterable[DeviceInfo], present: Iterable[DeviceInfo] = ()
) -> list[DeviceInfo]:
    """Return the devices with the addresses of their executors for other boxes.

    Each executor has a port of its own. Without ``NEREUS_EXECUTORS`` the devices stay as they are.

    Args:
        present: devices that have their addresses already; they keep them.

    Raises:
        SettingsError: there are too few ports.
    """
    first = settings.executors
    if first is None:
        return list(devices)
    assigned = {device.id: device.address for device in present if device.address}
    ports = {int(address.rpartition(":")[2]) for address in assigned.values()}
    free = (port for port in itertools.count(first.port) if port not in ports)
    listeners = [
        msgspec.structs.replace(device, address=assigned.get(device.id) or str(Address(first.host, next(free))))
        for device in devices
    ]
    if any(int(device.address.rpartition(":")[2]) > 65535 for device in listeners):
        raise SettingsError(
            [f"NEREUS_EXECUTORS={first}: {len(listeners)} devices need a port each, and 65535 is the last"]
        )
    return listeners


def announced(host: str, devices: Iterable[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """The devices with addresses for other boxes, which reach this one at ``host``."""
    return tuple(
        msgspec.structs.replace(device, address=str(Address(host, int(device.address.rpartition(":")[2]))))
        if device.address
        else device
        for device in devices
    )
