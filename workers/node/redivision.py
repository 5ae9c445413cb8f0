"""The division of a box's cores into devices, which outlasts restarts (:class:`.daemon.NodeDaemon` follows orders)."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import msgspec

from .. import disk, log
from ..protocol.specs import DeviceInfo
from ..settings import Settings, SettingsError
from . import addresses, devices

_log = log.get("devices")


class Layout(msgspec.Struct, frozen=True):
    devices: tuple[DeviceInfo, ...] = ()  # all of them; empty: nothing is known of earlier starts
    ordered: str = ""  # the division that the control plane ordered; empty: the settings'
    retiring: frozenset[str] = frozenset()  # ids of devices that others replace


def divided_as(settings: Settings, ordered: str) -> Settings:
    """The settings with the division that was ordered, where one was."""
    return dataclasses.replace(settings, cpu_devices=ordered) if ordered else settings


def file(settings: Settings) -> Path:
    return settings.home / "members" / f"node-{disk.safe_name(settings.node_name)}-devices.json"


def restore(settings: Settings) -> Layout:
    """The last layout, as far as the box has its cores, else that of the settings."""
    before = _stored(settings)
    try:
        found = devices.find(divided_as(settings, before.ordered), before.devices)
    except SettingsError as error:
        if not before.ordered:
            raise
        _log.error("division_refused", ordered=before.ordered, reason="; ".join(error.problems))
        before = Layout()
        found = devices.find(settings)
    names, cores = {device.id for device in found}, os.sched_getaffinity(0)
    retiring = [
        device
        for device in before.devices
        if device.id in before.retiring and device.id not in names and cores.issuperset(device.cores)
    ]
    listening = addresses.listening(settings, (*found, *retiring))
    return Layout(tuple(listening), before.ordered, frozenset(device.id for device in retiring))


def _stored(settings: Settings) -> Layout:
    path = file(settings)
    try:
        data = disk.read(path)
        return Layout() if data is None else msgspec.json.decode(data, type=Layout)
    except (OSError, msgspec.DecodeError) as error:
        _log.error("layout_unreadable", path=str(path), reason=str(error))
        return Layout()


def store(settings: Settings, layout: Layout) -> None:
    # The next start gives addresses by the settings of then.
    devices = tuple(msgspec.structs.replace(device, address="") for device in layout.devices)
    try:
        disk.write_private(file(settings), msgspec.json.encode(msgspec.structs.replace(layout, devices=devices)))
    except OSError as error:
        # The devices serve all the same; a restart would divide the cores by the last configuration anew.
        _log.error("layout_not_stored", path=str(file(settings)), reason=str(error))
