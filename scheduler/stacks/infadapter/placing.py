"""Devices by name, with few loads, and quotas of variants. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduler.allocation.groups import IdenticalDevices, grouped
from scheduler.allocation.problem import Problem

from ..dedicated import DedicatedChoices, ResidentCapacity
from .capacity_line import fitted
from .weighing import CoreOption


class CoreOptions:
    """The groups of devices, what runs there under the plan in force, and the options.

    Attributes:
        group_of: the number of its group by device.
        running: by device, the variant that the plan in force runs there; without a plan, one that is loaded.
        options: with a capacity above 0.
    """

    def __init__(self, problem: Problem) -> None:
        choices = DedicatedChoices(problem)
        self._order = tuple(choices.devices)
        self._groups = grouped(problem.devices)
        self.group_of = {device.id: number for number, group in enumerate(self._groups) for device in group.devices}
        self.running = _running(problem)
        self.options = [
            option
            for number, group in enumerate(self._groups)
            for variant in problem.variants
            if (resident := choices.resident(group.one, variant)) is not None
            and (option := self._option(number, group, resident)).capacity(len(group)) > 0
        ]

    def _option(self, number: int, group: IdenticalDevices, resident: ResidentCapacity) -> CoreOption:
        variant = resident.variant
        points = variant.capacities.get(group.one.type)
        kept = sum(self.running.get(device.id) == variant.id for device in group.devices)
        return CoreOption(number, resident, len(group), kept, fitted(points) if points else None)

    def place(self, devices: Mapping[tuple[int, str], int]) -> dict[str, ResidentCapacity]:
        """Residents by device, with few loads; ``devices``: their number, by option.

        Devices keep what they run. More devices of a variant are first those that have it loaded, then unused ones,
        then those that run what is given up: the old serve until then.
        """
        resident = {option.key: option.resident for option in self.options}
        placed: dict[str, ResidentCapacity] = {}
        for number, group in enumerate(self._groups):
            wanted = Counter({variant: n for (g, variant), n in devices.items() if g == number and n})
            free = []
            for device in group.devices:
                own = self.running.get(device.id)
                if own is not None and wanted[own] > 0:
                    wanted[own] -= 1
                    placed[device.id] = replace(resident[number, own], device=device)
                else:
                    free.append(device)
            for variant, count in wanted.items():
                free.sort(key=lambda device, v=variant: (v not in device.loaded, device.id in self.running))
                for device in free[:count]:
                    placed[device.id] = replace(resident[number, variant], device=device)
                del free[:count]
        return {id: placed[id] for id in self._order if id in placed}


def _running(problem: Problem) -> dict[str, str]:
    known = {variant.id for variant in problem.variants}
    if problem.previous is not None:
        placed = sorted(problem.previous.placements, key=lambda p: p.rate)
        # The busiest one of a device comes last; others stand by.
        return {p.device: p.variant for p in placed if p.variant in known}
    return {device.id: min(here) for device in problem.devices if (here := device.loaded & known)}


def quotas(problem: Problem, options: Sequence[CoreOption], devices: Mapping[tuple[int, str], int]) -> dict[str, float]:
    capacity: Counter[str] = Counter()
    variants = {}
    for option in options:
        variant = variants[option.resident.variant.id] = option.resident.variant
        capacity[variant.id] += option.capacity(devices[option.key])
    left = {a.id: a.demand for a in problem.applications}
    given = {}
    for variant in sorted(variants.values(), key=lambda v: (-v.accuracy, v.id)):
        given[variant.id] = min(left[variant.application], capacity[variant.id])
        left[variant.application] -= given[variant.id]
    return given


def rates(
    residents: Mapping[str, ResidentCapacity],
    options: Sequence[CoreOption],
    devices: Mapping[tuple[int, str], int],
    quota: Mapping[str, float],
    group_of: Mapping[str, int],
) -> dict[str, float]:
    each = {option.key: option.capacity(n) / n for option in options if (n := devices[option.key])}
    here = {id: each[group_of[id], resident.variant.id] for id, resident in residents.items()}
    total: Counter[str] = Counter()
    for id, resident in residents.items():
        total[resident.variant.id] += here[id]
    return {
        id: quota[resident.variant.id] * here[id] / total[resident.variant.id] if total[resident.variant.id] else 0.0
        for id, resident in residents.items()
    }
