"""INFaaS-Accuracy: INFaaS' greedy heuristic with the accuracy drop as objective.

The devices are its limit.

Sources: Romero et al., "INFaaS" (Section 4.2.2, the heuristic in place of the ILP; Section 5, slack-threshold 1.05),
and Proteus, Section 6.1.1, which exchanges objective and constraint and lets INFaaS decide on a query's arrival.
:mod:`.arrivals` decides when; this module decides what.

The running instances are the state. Each application in turn takes the one action that lowers its accuracy drop the
most: replicate (a variant on a free device), upgrade or downgrade (another variant on a device that it has). Items
left out count as a drop to zero, so throughput comes first. This repeats until no application has such an action; then
instances that serve nothing are released, and their devices are free for others; where no other needs them, they stay
for T_v (:mod:`.cost`). No application gives up a device that
it can use, nor exchanges several at once: that is the greedy heuristic's local optimum, as published.

Queries go to the most accurate running instances that are not at their peak (``getVariant``, Section 4.1): shares fill
instances in the order of their accuracy. The slack is the margin that the control loop has put into the demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from scheduler.allocation.problem import Allocation, ApplicationDemand, DeviceResources, Problem

from ..dedicated import NOTHING, DedicatedChoices, ResidentCapacity, best_first
from .cost import InstanceOptions, scaled

#: Smallest improvement of a drop, as a part of the largest possible one: otherwise a rounding error would be served by
#: an instance without a rate, which would be released and loaded again endlessly.
ROUNDING = 1e-9


def infaas_accuracy(problem: Problem) -> Allocation:
    choices = DedicatedChoices(problem)
    cluster = _Cluster(problem, choices)
    while True:
        waiting = [a for a in problem.applications if a.demand > NOTHING]
        while waiting:
            waiting = [application for application in waiting if cluster.improve(application)]
        rates = best_first(problem, cluster.residents)
        idle = [device for device, rate in rates.items() if rate <= 0]
        if not idle:
            break
        for device in idle:
            del cluster.residents[device]
    why = "Variants are copied to free devices, or replaced by faster or more accurate ones, one step at a time."
    return scaled(problem, choices, cluster.residents, why, best_first)


class _Cluster:
    def __init__(self, problem: Problem, choices: DedicatedChoices):
        instances = InstanceOptions(problem, choices)
        self.residents: dict[str, ResidentCapacity] = dict(instances.running)
        self._groups, self._group = instances.groups, instances.group_of
        self._choices = {
            (g, a.id): choices.by_accuracy(group.one, a.id)
            for g, group in enumerate(self._groups)
            for a in problem.applications
        }
        self._top = {
            a.id: max((s.variant.accuracy for g in range(len(self._groups)) for s in self._choices[g, a.id]), default=0)
            for a in problem.applications
        }

    def improve(self, application: ApplicationDemand) -> bool:
        own = [
            (s.variant.accuracy, s.capacity) for s in self.residents.values() if s.variant.application == application.id
        ]
        lowest = self._drop(application, own)
        least = application.demand * max(self._top[application.id], 1.0) * ROUNDING
        best: tuple[DeviceResources, ResidentCapacity] | None = None
        for device, resident, others in self._actions(application):
            drop = self._drop(application, [*others, (resident.variant.accuracy, resident.capacity)])
            if drop < lowest - least:
                lowest, best = drop, (device, resident)
        if best is None:
            return False
        device, resident = best
        self.residents[device.id] = replace(resident, device=device)
        return True

    def _actions(
        self, application: ApplicationDemand
    ) -> Iterator[tuple[DeviceResources, ResidentCapacity, list[tuple[float, float]]]]:
        """Yield the actions that an application has.

        First come those on a free device of each group, then those in place of an instance of each group and variant.
        Capacities are those of any device of the group.

        Yields:
            (device, the resident there, (accuracy, items/s) of the application's other instances).
        """
        own = {d: s for d, s in self.residents.items() if s.variant.application == application.id}
        running = {d: (s.variant.accuracy, s.capacity) for d, s in own.items()}
        for g, group in enumerate(self._groups):
            free = [device for device in group.devices if device.id not in self.residents]
            if free:
                for resident in self._choices[g, application.id]:
                    # A device that has the variant loaded, if there is one.
                    device = next((d for d in free if resident.variant.id in d.loaded), free[0])
                    yield device, resident, list(running.values())
        seen: Counter[tuple[int, str]] = Counter()
        for device, instance in own.items():
            key = self._group[device], instance.variant.id
            seen[key] += 1
            if seen[key] > 1:
                continue
            others = [state for d, state in running.items() if d != device]
            for resident in self._choices[key[0], application.id]:
                if resident.variant.id != instance.variant.id:
                    yield instance.device, resident, others

    def _drop(self, application: ApplicationDemand, instances: list[tuple[float, float]]) -> float:
        """Items/s times points below the best on instances: (accuracy, items/s).

        The demand fills the most accurate instances first; what is left out drops to zero.
        """
        left, drop, top = application.demand, 0.0, self._top[application.id]
        for accuracy, capacity in sorted(instances, reverse=True):
            rate = min(left, capacity)
            left -= rate
            drop += rate * (top - accuracy)
            if left <= 0:
                return drop
        return drop + left * max(top, 1.0)
