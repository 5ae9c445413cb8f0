"""INFaaS' greedy heuristic in place of its ILP (Section 4.2.2), and SM+.

An application whose instances have less than 1.05 times its load is scaled up: replicated (more instances of a variant
that runs) or upgraded (other instances, of a variant with a higher throughput, in place of all that run), whichever
costs less. One that could do with fewer or cheaper instances is scaled down, after a while (:mod:`.cost`). SM+ (Section
6) is the same without vertical scaling. It keeps to one variant of each application, a developer's choice: the pinned
one, else the one with the highest throughput.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from scheduler.allocation.problem import Allocation, ApplicationDemand, CandidateVariant, DeviceResources, Problem

from ..dedicated import DedicatedChoices, ResidentCapacity
from ..placed_once import static
from .cost import InstanceOptions, adding, asked, count_for, scaled


def infaas_greedy(problem: Problem) -> Allocation:
    return _scale(problem, "Instances are copied, upgraded, downgraded or removed, whichever is cheapest (INFaaS).")


def sm_plus(problem: Problem) -> Allocation:
    narrowed = replace(problem, variants=developers_choice(problem))
    return _scale(narrowed, "Each application has as many instances of one variant as its load asks for (SM+).")


def clipper_plus(problem: Problem) -> Allocation:
    return static(replace(problem, variants=developers_choice(problem)), "chosen")


def developers_choice(problem: Problem) -> tuple[CandidateVariant, ...]:
    """Each application's pinned variant, else that of the highest throughput."""
    instances = InstanceOptions(problem, DedicatedChoices(problem))
    kept: dict[str, ResidentCapacity] = {}
    for instance in instances.options.values():
        best = kept.get(instance.variant.application)
        if best is None or (instance.variant.pinned, instance.capacity) > (best.variant.pinned, best.capacity):
            kept[instance.variant.application] = instance
    return tuple(instance.variant for instance in kept.values())


class _Action(NamedTuple):
    """Instances of an option to add, in place of some devices' instances.

    ``cost`` is that of the instances added, less that of those replaced.
    """

    cost: float
    accuracy: float
    option: ResidentCapacity
    devices: tuple[DeviceResources, ...]
    replaced: frozenset[str]


def _scale(problem: Problem, why: str) -> Allocation:
    choices = DedicatedChoices(problem)
    cluster = _Cluster(InstanceOptions(problem, choices))
    lacking = []
    for application in problem.applications:
        if cluster.capacity(application.id) >= asked(application.demand):
            cluster.scale_down(application)
        else:
            lacking.append(application)
    for application in sorted(lacking, key=lambda a: (-a.weight, a.id)):
        cluster.scale_up(application)
    residents = {device: cluster.running[device] for device in choices.devices if device in cluster.running}
    return scaled(problem, choices, residents, why)


class _Cluster:
    def __init__(self, instances: InstanceOptions):
        self._instances = instances
        self.running: dict[str, ResidentCapacity] = dict(instances.running)

    def capacity(self, application: str) -> float:
        return sum(instance.capacity for instance in self._running_of(application).values())

    def scale_up(self, application: ApplicationDemand) -> None:
        """Take the cheapest action that serves the load, or serve as much as possible.

        Where no action serves the load, instances are added, or replaced by faster ones, one by one.
        """
        needed = asked(application.demand)
        actions = [*self._replicate(application.id, needed), *self._upgrade(application.id, needed)]
        if actions:
            self._take(min(actions, key=lambda action: (action.cost, -action.accuracy)))
            return
        while self.capacity(application.id) < needed:
            gains = list(self._single(application.id))
            if not gains:
                return
            _, device, option = max(gains, key=lambda item: (item[0], item[2].variant.accuracy))
            self.running[device.id] = replace(option, device=device)

    def scale_down(self, application: ApplicationDemand) -> None:
        needed, running = asked(application.demand), self._running_of(application.id)
        cheaper = [
            action for action in self._instead(application.id, needed) if action.cost < 0 and action.option.capacity > 0
        ]
        removed: dict[str, ResidentCapacity] = {}
        left = sum(instance.capacity for instance in running.values())
        for device, instance in sorted(
            running.items(), key=lambda item: (-item[1].device.cost, item[1].variant.accuracy)
        ):
            if left - instance.capacity >= needed:
                removed[device], left = instance, left - instance.capacity
        best = min(cheaper, key=lambda action: (action.cost, -action.accuracy), default=None)
        if best is not None and best.cost < -sum(instance.device.cost for instance in removed.values()):
            self._take(best)
            return
        for device in removed:
            del self.running[device]

    def _running_of(self, application: str) -> dict[str, ResidentCapacity]:
        return {d: instance for d, instance in self.running.items() if instance.variant.application == application}

    def _free(self, group: int, variant: str, but: Mapping[str, ResidentCapacity] | None = None) -> list:
        free = [d for d in self._instances.groups[group].devices if d.id not in self.running or (but and d.id in but)]
        return sorted(free, key=lambda d: (variant not in d.loaded, d.id in self._instances.running))

    def _replicate(self, application: str, needed: float) -> Iterator[_Action]:
        lacking = needed - self.capacity(application)
        running = {instance.variant.id for instance in self._running_of(application).values()}
        for (group, variant), option in self._instances.of(application).items():
            if variant in running:
                yield from self._add(group, option, count_for(lacking, option.capacity), {})

    def _upgrade(self, application: str, needed: float) -> Iterator[_Action]:
        most = max((instance.capacity for instance in self._running_of(application).values()), default=0.0)
        return (action for action in self._instead(application, needed) if action.option.capacity > most)

    def _instead(self, application: str, needed: float) -> Iterator[_Action]:
        running = self._running_of(application)
        for (group, _), option in self._instances.of(application).items():
            yield from self._add(group, option, count_for(needed, option.capacity), running)

    def _add(
        self, group: int, option: ResidentCapacity, count: int, instead: Mapping[str, ResidentCapacity]
    ) -> Iterator[_Action]:
        free = self._free(group, option.variant.id, instead)
        if count > len(free):
            return
        devices = tuple(free[:count])
        # Instances that run already, and go on, are not loaded.
        stays = sum(d.id in instead and instead[d.id].variant.id == option.variant.id for d in devices)
        cost = adding(option, count - stays) + stays * option.device.cost
        cost -= sum(instance.device.cost for instance in instead.values())
        yield _Action(cost, option.variant.accuracy, option, devices, frozenset(instead))

    def _single(self, application: str) -> Iterator[tuple[float, DeviceResources, ResidentCapacity]]:
        """Instances that raise the throughput: (items/s more, device, option)."""
        running = self._running_of(application)
        for (group, variant), option in self._instances.of(application).items():
            for device in self._free(group, variant)[:1]:
                yield option.capacity, device, option
            for device in self._instances.groups[group].devices:
                if device.id in running and option.capacity > running[device.id].capacity * (1 + 1e-9):
                    yield option.capacity - running[device.id].capacity, device, option

    def _take(self, action: _Action) -> None:
        for device in action.replaced:
            self.running.pop(device, None)
        for device in action.devices:
            self.running[device.id] = replace(action.option, device=device)
