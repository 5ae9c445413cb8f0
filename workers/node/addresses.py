"""Where cores on other boxes reach this node's executors."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from workers import machine
from workers.protocol.specs import DeviceInfo
from workers.settings import Settings


def listening(settings: Settings, devices: Iterable[DeviceInfo], taken: int = 0) -> list[DeviceInfo]:
    """The devices with the addresses that their executors listen on for other boxes, one port each.

    Args:
        taken: ports that earlier devices have.
    """
    first = settings.executors
    if first is None:
        return list(devices)
    return [
        msgspec.structs.replace(device, address=machine.host_and_port(first.host, first.port + place))
        for place, device in enumerate(devices, taken)
    ]


def announced(settings: Settings, devices: Iterable[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """The devices as the control plane is told of them: with addresses that other boxes can connect to."""
    host = machine.own_host(settings)
    return tuple(
        msgspec.structs.replace(device, address=machine.host_and_port(host, int(device.address.rpartition(":")[2])))
        if device.address
        else device
        for device in devices
    )
