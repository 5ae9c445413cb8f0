"""Division of a box's cores into other devices while it serves; it outlasts restarts.

The new devices' executors start beside those that serve. The devices that they replace *retire*: the control plane
plans with them until the new ones are profiled, then with the new ones; the node ends a retired device once it holds
nothing. A device whose cores stay together stays as it is.
"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .. import disk, log
from ..protocol import control
from ..protocol.specs import DeviceInfo
from ..settings import Settings, SettingsError
from . import addresses, devices

if TYPE_CHECKING:
    from .daemon import NodeDaemon

_log = log.get("devices")


class Layout(msgspec.Struct, frozen=True):
    """The division of a box's cores and GPUs into devices."""

    devices: tuple[DeviceInfo, ...] = ()  # all of them; empty: nothing is known of earlier starts
    ordered: str = ""  # the division that the control plane ordered; empty: the settings'
    retiring: tuple[str, ...] = ()  # ids of devices that others replace


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
    names, cores = {device.id for device in found}, set(devices.usable())
    retiring = [
        device
        for device in before.devices
        if device.id in before.retiring and device.id not in names and cores.issuperset(device.cores)
    ]
    listening = addresses.listening(settings, (*found, *retiring))
    return Layout(tuple(listening), before.ordered, tuple(device.id for device in retiring))


def _stored(settings: Settings) -> Layout:
    path = file(settings)
    try:
        data = disk.read(path)
        return Layout() if data is None else msgspec.json.decode(data, type=Layout)
    except (OSError, msgspec.DecodeError) as error:
        _log.error("layout_unreadable", path=str(path), reason=str(error))
        return Layout()


class Redivision:
    """Follows the division that the control plane orders, while :meth:`run` runs.

    Attributes:
        ordered: the division in use that was ordered; empty: the settings'.
        problem: why the newest order cannot be followed; empty: it is.
        retiring: ids of devices that others replace.
    """

    def __init__(self, settings: Settings, daemon: NodeDaemon, layout: Layout):
        self._settings, self._daemon = settings, daemon
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
            config = self._daemon.config
            if config is not None:
                await self._divide(config.cpu_devices)
                await self._end_retired(config)

    async def _divide(self, ordered: str) -> None:
        if ordered in (self.ordered, self._refused):
            if ordered == self.ordered and self.problem:
                self.problem, self._refused = "", None
                self._daemon.link.rejoin()
            return
        present = self._daemon.devices
        try:
            found = await asyncio.to_thread(devices.find, divided_as(self._settings, ordered), present)
            found = addresses.listening(self._settings, found, present)
        except SettingsError as error:
            self.problem, self._refused = "; ".join(error.problems)[:200], ordered
            _log.error("division_refused", ordered=ordered, reason=self.problem)
            self._daemon.link.rejoin()
            return
        self.ordered, self.problem, self._refused = ordered, "", None
        before, after = ({device.id for device in some} for some in (present, found))
        self.retiring = {device.id for device in present if device.kind == "cpu"} - after
        self._daemon.add([device for device in found if device.id not in before])
        _log.info("divided", ordered=ordered, retiring=sorted(self.retiring))
        self._announce()

    async def _end_retired(self, config: control.NodeConfig) -> None:
        ended = [ref for ref in sorted(self.retiring.intersection(config.retired)) if not self._daemon.holds(ref)]
        for ref in ended:
            await self._daemon.remove(ref)
            self.retiring.discard(ref)
            _log.info("device_retired", id=ref)
        if ended:
            self._announce()

    def _announce(self) -> None:
        # The next start gives addresses by the settings of then.
        every = tuple(msgspec.structs.replace(device, address="") for device in self._daemon.devices)
        path = file(self._settings)
        try:
            disk.write_private(path, msgspec.json.encode(Layout(every, self.ordered, tuple(sorted(self.retiring)))))
        except OSError as error:
            # The devices serve all the same; a restart would divide the cores by the last configuration anew.
            _log.error("layout_not_stored", path=str(path), reason=str(error))
        self._daemon.link.rejoin()
