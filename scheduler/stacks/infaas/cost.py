"""Costs of INFaaS' scaling actions, and its wait before it scales down. Pure.

Source: Romero et al., "INFaaS" (ATC '21), Sections 4.2.1 and 4.2.2. An action that adds n instances of a variant costs
C * (n + lambda * T_load * max(n, 0)): the hardware, and the loading. Costs are those of devices a second
(:attr:`..problem.DeviceResources.cost`), since an instance has a device of its own here, as with all baselines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from scheduler.allocation.capacity import profile_on
from scheduler.allocation.groups import IdenticalDevices, grouped
from scheduler.allocation.problem import Allocation, Problem
from workers.dispatch.published.devices import SLACK

from ..dedicated import NOTHING, DedicatedChoices, ResidentCapacity, allocation_with, evenly

#: lambda, 1/s; the paper names no value. A load is worth its time on the device, spread over a plan's period of 30 s
LOAD_WEIGHT = 1 / 30
#: an instance that may run on any device of a group
Option = tuple[int, str]


class InstanceOptions:
    """Instances that a problem permits, by (group, variant id), and those in force."""

    def __init__(self, problem: Problem, choices: DedicatedChoices):
        self.groups: list[IdenticalDevices] = grouped(problem.devices)
        self.group_of = {device.id: g for g, group in enumerate(self.groups) for device in group.devices}
        self.options: dict[Option, ResidentCapacity] = choices.options(self.groups)
        self.running = {} if problem.previous is None else choices.residents(problem.previous.placements)

    def of(self, application: str) -> dict[Option, ResidentCapacity]:
        return {key: instance for key, instance in self.options.items() if instance.variant.application == application}


def load_s(resident: ResidentCapacity) -> float:
    profile = profile_on(resident.variant, resident.device)
    return 0.0 if profile is None else profile.load_s


def adding(resident: ResidentCapacity, count: float = 1.0) -> float:
    return count * resident.device.cost * (1.0 + LOAD_WEIGHT * load_s(resident))


def asked(demand: float) -> float:
    """The capacity (items/s) that a demand asks for, with headroom (Eq. 1)."""
    return demand * SLACK if demand > NOTHING else 0.0


def count_for(rate: float, capacity: float) -> int:
    return max(0, math.ceil(rate / capacity - 1e-9))


def scaled(
    problem: Problem, choices: DedicatedChoices, residents: Mapping[str, ResidentCapacity], why: str, rates=evenly
) -> Allocation:
    """The allocation of instances (by device), and of those that wait to go.

    An instance in force that is to go stays, without a rate, until it has not been needed for T_v, the time in which it
    was loaded, unless its device is used for something else: load that comes back finds it.
    """
    previous, by_device = problem.previous, dict(rates(problem, residents))
    kept, since = dict(residents), {}
    running = {} if previous is None else choices.residents(previous.placements)
    for device, resident in running.items():
        if device in residents:
            continue
        began = min(previous.surplus_since.get(device, problem.at_s), problem.at_s)
        if problem.at_s - began < load_s(resident):
            kept[device], by_device[device], since[device] = resident, 0.0, began
    allocation = allocation_with(
        problem, kept, by_device, why, "No device is free, and no faster variant would serve more: add devices."
    )
    return replace(allocation, surplus_since=since)
