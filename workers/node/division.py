"""Division of a box's cores into CPU devices (``NEREUS_CPU_DEVICES=auto``).

It is a pure function of the box's topology.

All devices have the same number of physical cores, 1, 2, 4 or 8, so that few device types have to be profiled and the
same ones recur on other boxes. A device has whole cores, all of one NUMA node and one model. The reasons for the sizes
are in ``docs/decisions/21-boxes-and-releases.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ..topology import Topology

#: physical cores of a device: beyond eight, runs of small batches gain little from another one
SIZES = (8, 4, 2, 1)
#: devices that a box should have at least, so that several variants can be served at once
FEWEST = 4
#: part of the cores that may be in no device, beside those that are kept, so that all devices are equal
MOST_IDLE = 1 / 8
#: boxes with more cores than this keep one for what is not a device
KEEP_BEYOND = 4


class Division(msgspec.Struct, frozen=True):
    devices: tuple[tuple[int, ...], ...]  # processors by device
    size: int  # physical cores of each device
    cores: int  # physical cores that may be used, within the quota
    present: int  # physical cores that may be used without the quota

    @property
    def left(self) -> int:
        return self.cores - self.size * len(self.devices)


def divide(topology: Topology, keep: bool) -> Division:
    """Equal devices; ``keep``: with a core left over beyond :data:`KEEP_BEYOND`."""
    groups, present = _groups(topology), len(topology.cores())
    if topology.quota is not None:
        groups = _first(groups, max(1, math.floor(topology.quota)))
    cores = sum(map(len, groups))
    kept = int(keep and cores > KEEP_BEYOND)
    for size in SIZES:
        count = sum(len(group) // size for group in groups)
        if cores - count * size < kept:
            count -= 1
        idle = cores - count * size - kept
        if size == 1 or (count >= FEWEST and idle <= MOST_IDLE * cores):
            break
    return Division(tuple(_devices(groups, size, count)), size, cores, present)


def _groups(topology: Topology) -> list[list[tuple[int, ...]]]:
    """Physical cores that a device may combine: of one node, model and thread count."""
    groups: dict[tuple[int, str, int], list[tuple[int, ...]]] = {}
    for threads in topology.cores():
        first = threads[0]
        key = (topology.node_of[first], topology.model_of[first], len(threads))
        groups.setdefault(key, []).append(threads)
    return [groups[key] for key in sorted(groups)]


def _first(groups: Sequence[list[tuple[int, ...]]], limit: int) -> list[list[tuple[int, ...]]]:
    chosen = []
    for group in sorted(groups, key=len, reverse=True):
        chosen.append(group[:limit])
        limit -= len(chosen[-1])
    return [group for group in chosen if group]


def _devices(groups: Sequence[list[tuple[int, ...]]], size: int, count: int) -> list[tuple[int, ...]]:
    """The last ``count`` devices: the lowest cores serve most interrupts."""
    devices = []
    for group in groups:
        skip = len(group) % size
        for start in range(skip, len(group), size):
            devices.append(tuple(sorted(thread for core in group[start : start + size] for thread in core)))
    return devices[len(devices) - count :]


def summary(division: Division, others: str) -> str:
    """The division in one line; ``others`` have what is left; empty: nobody."""
    line = _cores(division.present)
    if division.cores < division.present:
        line += f", {division.cores} by the control group's quota"
    count = len(division.devices)
    line += f": {count} {'device' if count == 1 else 'devices'} of {_cores(division.size)}"
    if division.left:
        line += f", {_cores(division.left)} " + (f"for {others}" if others else "left over")
    return line


def _cores(number: int) -> str:
    return f"{number} core" if number == 1 else f"{number} cores"
