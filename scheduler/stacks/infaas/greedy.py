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
from scheduler.allocation.residents import ResidentCapacity

from ..dedicated import DedicatedChoices
from ..placed_once import static
from .cost import InstanceOptions, adding, asked, count_for, scaled


def infaas_greedy(problem: Problem) -> Allocation:
    """Scale the instances in force at the least cost, one application after the other."""
    return _scale(problem, "Instances are copied, upgraded, downgraded or removed, whichever is cheapest (INFaaS).")


def sm_plus(problem: Problem) -> Allocation:
    """Scale horizontally alone (SM+).

    Each application gets more or fewer instances of one variant.
    """
    narrowed = replace(problem, variants=developers_choice(problem))
    return _scale(narrowed, "Each application has as many instances of one variant as its load asks for (SM+).")


def clipper_plus(problem: Problem) -> Allocation:
    """Clipper+: the developer's choice of each application, placed once.

    Each application has this one variant, and as many instances as devices allow.
    """
    return static(replace(problem, variants=developers_choice(problem)), "chosen")


def developers_choice(problem: Problem) -> tuple[CandidateVariant, ...]:
    """Return the variant of each application that a developer would choose.

    It is the pinned one, else the one with the highest throughput on any device, among those that some device can run
    within half of the SLO.
    """
    some = InstanceOptions(problem, DedicatedChoices(problem))
    kept: dict[str, ResidentCapacity] = {}
    for one in some.options.values():
        best = kept.get(one.variant.application)
        if best is None or (one.variant.pinned, one.capacity) > (best.variant.pinned, best.capacity):
            kept[one.variant.application] = one
    return tuple(one.variant for one in kept.values())


class _Action(NamedTuple):
    """Instances of an option to add, in place of some devices' instances.

    Attributes:
        cost: of the instances added, less that of the instances replaced.
        accuracy: of the option's variant.
        devices: that get the instances.
        replaced: devices whose instances go.
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
    """The instances by device, and what can be done with them."""

    def __init__(self, some: InstanceOptions):
        self._some = some
        self.running: dict[str, ResidentCapacity] = dict(some.running)

    def capacity(self, application: str) -> float:
        """Items/s of an application's instances."""
        return sum(one.capacity for one in self._mine(application).values())

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
        """Downgrade to a cheaper set of instances, or remove some.

        Those that are not needed may be removed, the dearest first. The way that saves more is taken.
        """
        needed, mine = asked(application.demand), self._mine(application.id)
        cheaper = [
            action for action in self._instead(application.id, needed) if action.cost < 0 and action.option.capacity > 0
        ]
        removed: dict[str, ResidentCapacity] = {}
        left = sum(one.capacity for one in mine.values())
        for device, one in sorted(mine.items(), key=lambda item: (-item[1].device.cost, item[1].variant.accuracy)):
            if left - one.capacity >= needed:
                removed[device], left = one, left - one.capacity
        best = min(cheaper, key=lambda action: (action.cost, -action.accuracy), default=None)
        if best is not None and best.cost < -sum(one.device.cost for one in removed.values()):
            self._take(best)
            return
        for device in removed:
            del self.running[device]

    def _mine(self, application: str) -> dict[str, ResidentCapacity]:
        return {d: one for d, one in self.running.items() if one.variant.application == application}

    def _free(self, group: int, variant: str, but: Mapping[str, ResidentCapacity] | None = None) -> list:
        """Return the devices of a group without an instance, or with one of ``but``.

        Those that have the variant loaded come first.
        """
        free = [d for d in self._some.groups[group].devices if d.id not in self.running or (but and d.id in but)]
        return sorted(free, key=lambda d: (variant not in d.loaded, d.id in self._some.running))

    def _replicate(self, application: str, needed: float) -> Iterator[_Action]:
        """More instances of each variant that runs."""
        lacking = needed - self.capacity(application)
        running = {one.variant.id for one in self._mine(application).values()}
        for (group, variant), option in self._some.of(application).items():
            if variant in running:
                yield from self._add(group, option, count_for(lacking, option.capacity), {})

    def _upgrade(self, application: str, needed: float) -> Iterator[_Action]:
        """Instances of each variant with a higher throughput, in place of all that run."""
        most = max((one.capacity for one in self._mine(application).values()), default=0.0)
        return (action for action in self._instead(application, needed) if action.option.capacity > most)

    def _instead(self, application: str, needed: float) -> Iterator[_Action]:
        mine = self._mine(application)
        for (group, _), option in self._some.of(application).items():
            yield from self._add(group, option, count_for(needed, option.capacity), mine)

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
        cost -= sum(one.device.cost for one in instead.values())
        yield _Action(cost, option.variant.accuracy, option, devices, frozenset(instead))

    def _single(self, application: str) -> Iterator[tuple[float, DeviceResources, ResidentCapacity]]:
        """Yield the single instances that would raise an application's throughput.

        Yields:
            (items/s more, device, option): an instance on a free device, or a faster one in place of one that runs.
        """
        mine = self._mine(application)
        for (group, variant), option in self._some.of(application).items():
            for device in self._free(group, variant)[:1]:
                yield option.capacity, device, option
            for device in self._some.groups[group].devices:
                if device.id in mine and option.capacity > mine[device.id].capacity * (1 + 1e-9):
                    yield option.capacity - mine[device.id].capacity, device, option

    def _take(self, action: _Action) -> None:
        for device in action.replaced:
            self.running.pop(device, None)
        for device in action.devices:
            self.running[device.id] = replace(action.option, device=device)
