"""Division of a box's cores into other devices while it serves.

New devices are made before old ones end, and the division outlasts restarts.

The new devices' executors start beside those that serve. The devices that they replace *retire*: the control plane
plans with them until the new ones are profiled, then with the new ones; the node ends a retired device once it holds
nothing. A device whose cores stay together stays as it is.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from .. import disk, log
from ..protocol import control
from ..protocol.specs import DeviceInfo
from ..settings import Settings, SettingsError
from . import addresses, devices


class Layout(msgspec.Struct, frozen=True):
    """The division of a box's cores and GPUs into devices."""

    devices: tuple[DeviceInfo, ...] = ()  # all of them; empty: nothing is known of earlier starts
    ordered: str = ""  # the division that the control plane ordered; empty: the settings'
    retiring: tuple[str, ...] = ()  # ids of devices that others replace
    executors: str = ""  # the setting by which the devices have their addresses


class Box(Protocol):
    """The daemon's part."""

    devices: tuple[DeviceInfo, ...]
    config: control.NodeConfig | None

    def add(self, found: Sequence[DeviceInfo]) -> None: ...

    async def remove(self, ref: str) -> None: ...

    def holds(self, ref: str) -> bool:
        """Whether a device has a variant loaded, or has not said so yet."""

    def announce(self) -> None: ...


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
        log.get("devices").error("division_refused", ordered=before.ordered, reason="; ".join(error.problems))
        before = Layout()
        found = devices.find(settings)
    names = {device.id for device in found}
    retiring = [device for device in before.devices if device.id in before.retiring and device.id not in names]
    # listening() gives back the addresses that still hold.
    retiring_here = [
        msgspec.structs.replace(device, address="") for device in retiring if set(device.cores) <= set(devices.usable())
    ]
    present = before.devices if before.executors == str(settings.executors) else ()
    listening = addresses.listening(settings, (*found, *retiring_here), present)
    return Layout(tuple(listening), before.ordered, tuple(device.id for device in retiring_here))


def _stored(settings: Settings) -> Layout:
    path = file(settings)
    try:
        data = disk.read(path)
        return Layout() if data is None else msgspec.json.decode(data, type=Layout)
    except (OSError, msgspec.DecodeError) as error:
        log.get("devices").error("layout_unreadable", path=str(path), reason=str(error))
        return Layout()


class Redivision:
    """Follows the division that the control plane orders, while :meth:`run` runs.

    Attributes:
        ordered: the division in use that was ordered; empty: the settings'.
        problem: why the newest order cannot be followed; empty: it is.
        retiring: ids of devices that others replace.
    """

    def __init__(self, settings: Settings, box: Box, layout: Layout):
        self._settings, self._box = settings, box
        self._file = file(settings)
        self._wake = asyncio.Event()
        self._refused: str | None = None
        self.ordered, self.retiring, self.problem = layout.ordered, set(layout.retiring), ""

    @property
    def settings(self) -> Settings:
        return divided_as(self._settings, self.ordered)

    def look(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Follow orders until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            config = self._box.config
            if config is not None:
                await self._divide(config.cpu_devices)
                await self._end_retired(config)

    async def _divide(self, ordered: str) -> None:
        if ordered in (self.ordered, self._refused):
            if ordered == self.ordered and self.problem:
                self.problem, self._refused = "", None
                self._box.announce()
            return
        present = self._box.devices
        try:
            found = await asyncio.to_thread(devices.find, divided_as(self._settings, ordered), present)
            found = addresses.listening(self._settings, found, present)
        except SettingsError as error:
            self.problem, self._refused = "; ".join(error.problems)[:200], ordered
            log.get("devices").error("division_refused", ordered=ordered, reason=self.problem)
            self._box.announce()
            return
        self.ordered, self.problem, self._refused = ordered, "", None
        self.retiring = _replaced(present, {device.id for device in found})
        names = {device.id for device in present}
        self._box.add([device for device in found if device.id not in names])
        self._store()
        log.get("devices").info("divided", ordered=ordered, retiring=sorted(self.retiring))
        self._box.announce()

    async def _end_retired(self, config: control.NodeConfig) -> None:
        planned = {plan.device for plan in config.plan.devices if plan.residents}
        over = (self.retiring & set(config.retired)) - planned
        ended = [ref for ref in sorted(over) if not self._box.holds(ref)]
        for ref in ended:
            await self._box.remove(ref)
            self.retiring.discard(ref)
            log.get("devices").info("device_retired", id=ref)
        if ended:
            self._store()
            self._box.announce()

    def _store(self) -> None:
        layout = Layout(self._box.devices, self.ordered, tuple(sorted(self.retiring)), str(self._settings.executors))
        try:
            disk.write_private(self._file, msgspec.json.encode(layout))
        except OSError as error:
            # The devices serve all the same; a restart would divide the cores by the last configuration anew.
            log.get("devices").error("layout_not_stored", path=str(self._file), reason=str(error))


def _replaced(present: Sequence[DeviceInfo], remaining: Collection[str]) -> set[str]:
    return {device.id for device in present if device.kind == "cpu" and device.id not in remaining}
