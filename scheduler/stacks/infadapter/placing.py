"""Options of variants on groups of devices, and devices by name with few loads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scheduler.allocation.groups import grouped
from scheduler.allocation.problem import Problem

from ..dedicated import DedicatedChoices, ResidentCapacity, placed
from .capacity_line import fitted
from .weighing import CoreOption


class CoreOptions:
    """The groups of devices, what runs there under the plan in force, and the options.

    Attributes:
        options: with a capacity above 0.
    """

    def __init__(self, problem: Problem) -> None:
        #: by device, the variant that the plan in force runs there; without a plan, one that is loaded
        self._running = _running(problem)
        # A device keeps what it runs, whatever else it has loaded.
        devices = tuple(
            replace(device, loaded=frozenset({self._running[device.id]})) if device.id in self._running else device
            for device in problem.devices
        )
        self._choices = DedicatedChoices(replace(problem, devices=devices))
        self._groups = grouped(devices)
        self.options = [
            option
            for (number, _), resident in self._choices.options(self._groups).items()
            if (option := self._option(number, resident)).capacity(option.most) > 0
        ]

    def _option(self, number: int, resident: ResidentCapacity) -> CoreOption:
        variant, group = resident.variant, self._groups[number]
        points = variant.capacities.get(group.one.type)
        kept = sum(self._running.get(device.id) == variant.id for device in group.devices)
        return CoreOption(number, resident, len(group), kept, fitted(points) if points else None)

    def place(self, counts: Mapping[tuple[int, str], int]) -> dict[str, ResidentCapacity]:
        """Residents by device, each with its part of what its option's devices serve together.

        Args:
            counts: devices by option.
        """
        each = {option.key: option.capacity(n) / n for option in self.options if (n := counts[option.key])}
        group_of = {device.id: number for number, group in enumerate(self._groups) for device in group.devices}
        return {
            id: replace(resident, capacity=each[group_of[id], resident.variant.id])
            for id, resident in placed(self._choices, self._groups, counts).items()
        }


def _running(problem: Problem) -> dict[str, str]:
    known = {variant.id for variant in problem.variants}
    if problem.previous is not None:
        by_rate = sorted(problem.previous.placements, key=lambda p: p.rate)
        # The busiest one of a device comes last; others stand by.
        return {p.device: p.variant for p in by_rate if p.variant in known}
    return {device.id: min(here) for device in problem.devices if (here := device.loaded & known)}
