"""Residents beyond the planned ones, in what room is left: pinned variants, and those that help before a plan changes.

Three kinds help: a faster variant of an application that the device works for (its queue grew), a more accurate one
(a lull), also one that only just fits the SLO and so is never planned on, and variants of other applications (another
device is too busy). They have no rate and take no time of the plan; the dispatcher uses them when that pays. Where
nothing limits a device's residents there is nothing to choose, and they are left to :mod:`.residency`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .capacity import profile_on
from .deal import Bin, Seat
from .groups import usable
from .menu import Menu
from .problem import Device, Problem
from .spares import Spare

#: A stand-by must be faster than what works there by this factor to be worth its room.
FASTER = 1.2
#: Variants that a device loads anew only to stand by.
MOST_LOADS = 2

#: (device, the index of its group, None where plans do not reach it, and what it holds)
Hosts = Sequence[tuple[Device, int | None, Bin]]


def stand_by(menu: Menu, hosts: Hosts, prices: Sequence[float]) -> None:
    """Add residents without a rate to the bins of ``hosts``, where there is room.

    ``prices``: points/s of a group's device time, at which other applications' variants are chosen.
    """
    weight = [a.weight for a in menu.applications]
    coverage = _coverage(menu, hosts)
    choice: dict[int, list[list[Spare]]] = {}
    for device, g, bin_ in hosts:
        room = _Room(device, bin_)
        if room.unlimited or g is None:
            continue
        if g not in choice:
            choice[g] = [_few(mine, w, prices[g]) for mine, w in zip(menu.spares(g), weight, strict=True)]
        for spare in _in_order(menu, device, g, bin_, choice[g], coverage):
            room.take(spare)


class _Room:
    """What a device can still hold."""

    def __init__(self, device: Device, bin_: Bin):
        self._device, self._bin = device, bin_
        self._here = {seat.variant.id for seat in bin_.seats}
        self._memory = device.memory_bytes
        if self._memory is not None:
            self._memory -= sum(seat.memory_bytes for seat in bin_.seats)
        self._loads = 0

    @property
    def unlimited(self) -> bool:
        return self._memory is None and self._device.max_resident is None

    def take(self, spare: Spare) -> bool:
        """Let it stand by if it fits."""
        device, new = self._device, spare.variant.id not in self._device.loaded and spare.load_s > 0
        if spare.variant.id in self._here:
            return False
        if device.max_resident is not None and len(self._here) >= device.max_resident:
            return False
        if new and self._loads >= MOST_LOADS:
            return False
        if self._memory is not None:
            if spare.memory_bytes > self._memory:
                return False
            self._memory -= spare.memory_bytes
        self._loads += new
        self._here.add(spare.variant.id)
        self._bin.seats.append(Seat(spare.variant, 0.0, spare.batch, 0.0, spare.memory_bytes))
        return True


def _few(mine: Sequence[Spare], weight: float, price: float) -> list[Spare]:
    """The one that pays most now, the fastest and the most accurate, in this order."""
    if not mine:
        return []
    now = max(mine, key=lambda s: weight * s.variant.accuracy - price / s.rate)
    return list(dict.fromkeys((now, mine[-1], mine[0])))


def _coverage(menu: Menu, hosts) -> dict[str, float]:
    """How many times its demand an application's devices could serve at their fastest."""
    demand = {a.id: a.demand for a in menu.applications}
    covered = dict.fromkeys(demand, 0.0)
    index = {a.id: q for q, a in enumerate(menu.applications)}
    for _, g, bin_ in hosts:
        if g is None:
            continue
        for name in {seat.variant.application for seat in bin_.seats if seat.variant.application in index}:
            spares_here = menu.spares(g)[index[name]]
            if spares_here:
                covered[name] += spares_here[-1].rate / demand[name]
    return covered


def _in_order(menu: Menu, device: Device, g: int, bin_: Bin, choice, coverage: dict[str, float]) -> list[Spare]:
    """Faster ones of what works here first, then what is loaded, more accurate ones, and the least covered
    applications, whose coverage then counts this device."""
    demand = {a.id: a.demand for a in menu.applications}
    rate = {s.variant.id: s.rate for mine in menu.spares(g) for s in mine}
    here: dict[str, float] = {}
    for seat in bin_.seats:
        if seat.rate > 0:
            name = seat.variant.application
            here[name] = max(here.get(name, 0.0), rate.get(seat.variant.id, 0.0))
    own = [(a.id, mine) for a, mine in zip(menu.applications, choice, strict=True) if mine and a.id in here]
    others = [(a.id, mine) for a, mine in zip(menu.applications, choice, strict=True) if mine and a.id not in here]
    fastest = [(name, max(mine, key=lambda s: s.rate)) for name, mine in own]
    order = [spare for name, spare in fastest if spare.rate > FASTER * here[name]]
    order += [s for _, mine in (*own, *others) for s in mine if s.variant.id in device.loaded]
    order += [mine[-1] for _, mine in own]
    others.sort(key=lambda pair: coverage[pair[0]])
    order += [mine[0] for _, mine in others]
    if others:
        name, mine = others[0]
        coverage[name] += mine[0].rate / demand[name]
    return order


def pin(problem: Problem, hosts: Hosts) -> list[str]:
    """Let each pinned variant that works nowhere stand by on one device with room for it, one that has it loaded if
    there is one. Returns those for which there is no room now, though it could run on one of the devices."""
    resident = {seat.variant.id for _, _, bin_ in hosts for seat in bin_.seats}
    missing = []
    for variant in problem.variants:
        if not variant.pinned or variant.excluded or variant.id in resident:
            continue
        able = [host for host in hosts if profile_on(variant, host[0]) is not None]
        for device, _, bin_ in sorted(able, key=lambda host: variant.id not in host[0].loaded):
            profile = variant.profiles[device.type]
            if _Room(device, bin_).take(Spare(variant, profile.points[0][0], 0.0, profile.memory_bytes, 0.0)):
                break
        else:
            if able:
                missing.append(variant.id)
    return missing


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
