"""Dedicated residents (one variant alone on a device) and allocations of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyscipopt import Model, quicksum

from scheduler.allocation.assign import keep_loaded
from scheduler.allocation.capacity import Capacity, dedicated_capacity, profile_on
from scheduler.allocation.groups import IdenticalDevices, usable
from scheduler.allocation.outcome import outcome
from scheduler.allocation.problem import (
    Allocation,
    CandidateVariant,
    DeviceResources,
    LatencyProfile,
    Placement,
    Problem,
)
from scheduler.allocation.solver import names

#: items/s below which an application counts as without demand, because shares of less are lost to rounding
NOTHING = 1e-9


@dataclass(frozen=True)
class ResidentCapacity:
    """A variant alone on a device.

    Attributes:
        capacity: items/s, of the time for queries; ``full_rate``: of all its time.
    """

    device: DeviceResources
    variant: CandidateVariant
    capacity: float
    max_batch: int
    full_rate: float

    def time_share(self, rate: float) -> float:
        return rate / self.full_rate


class DedicatedChoices:
    """Possible dedicated residents: Eq. 5 by device and variant (Proteus, Section 4)."""

    def __init__(self, problem: Problem):
        self.devices = {d.id: d for d in problem.devices}
        self.variants = {v.id: v for v in problem.variants}
        self._slo = {a.id: a.slo_s for a in problem.applications}
        self._of: dict[str, list[CandidateVariant]] = {a.id: [] for a in problem.applications}
        for variant in problem.variants:
            if not variant.excluded:
                self._of[variant.application].append(variant)
        # One profile serves all devices of its type.
        self._capacities: dict[tuple[int, str], Capacity | None] = {}

    def resident(self, device: DeviceResources, variant: CandidateVariant) -> ResidentCapacity | None:
        """None: it may not, cannot or is too slow to run there."""
        profile = profile_on(variant, device)
        if profile is None or variant.excluded or not usable(device):
            return None
        key = (id(profile), variant.application)
        if key not in self._capacities:
            self._capacities[key] = dedicated_capacity(profile, self._slo[variant.application])
        capacity = self._capacities[key]
        if capacity is None:
            return None
        return ResidentCapacity(device, variant, capacity.rate * device.available, capacity.batch, capacity.rate)

    def options(self, groups: Sequence[IdenticalDevices]) -> dict[tuple[int, str], ResidentCapacity]:
        """Possible residents of any device of a group, by its number and variant."""
        return {
            (g, variant.id): resident
            for g, group in enumerate(groups)
            for variant in self.variants.values()
            if (resident := self.resident(group.one, variant)) is not None
        }

    def by_accuracy(self, device: DeviceResources, application: str) -> list[ResidentCapacity]:
        """The most accurate one first; of equally accurate ones, the faster."""
        possible = [resident for v in self._of[application] if (resident := self.resident(device, v)) is not None]
        return sorted(possible, key=lambda s: (-s.variant.accuracy, -s.capacity))

    def fastest(self, device: DeviceResources, application: str) -> ResidentCapacity | None:
        """Of equally fast ones the more accurate; None: there is none."""
        return max(self.by_accuracy(device, application), key=lambda s: s.capacity, default=None)

    def useful(self, device: DeviceResources) -> bool:
        return any(self.resident(device, v) is not None for v in self.variants.values())

    def residents(self, placements: Iterable[Placement]) -> dict[str, ResidentCapacity]:
        possible: dict[str, ResidentCapacity] = {}
        for placement in placements:
            device, variant = self.devices.get(placement.device), self.variants.get(placement.variant)
            resident = None if device is None or variant is None else self.resident(device, variant)
            if resident is not None and device.id not in possible:
                possible[device.id] = resident
        return possible


def counted(model: Model, groups: Sequence[IdenticalDevices], keys: Iterable[tuple[int, str]]) -> dict:
    """Variables of a model by key: devices of a group, the key's first part."""
    n = {key: model.addVar(names(("n", *key)), vtype="I", lb=0, ub=len(groups[key[0]])) for key in keys}
    for g, group in enumerate(groups):
        here = [variable for (h, _), variable in n.items() if h == g]
        if here:
            model.addCons(quicksum(here) <= len(group))
    return n


def placed(
    choices: DedicatedChoices, groups: Sequence[IdenticalDevices], counts: Mapping[tuple[int, str], int]
) -> dict[str, ResidentCapacity]:
    """Residents by device, with few loads, of counts by group and variant."""
    residents: dict[str, ResidentCapacity] = {}
    for g, group in enumerate(groups):
        wanted = {variant: count for (h, variant), count in counts.items() if h == g and count > 0}
        for device, variant in keep_loaded(group.devices, wanted).items():
            residents[device] = choices.resident(choices.devices[device], choices.variants[variant])
    return {device: residents[device] for device in choices.devices if device in residents}


def capacity_by_application(residents: Mapping[str, ResidentCapacity]) -> Counter[str]:
    capacity: Counter[str] = Counter()
    for resident in residents.values():
        capacity[resident.variant.application] += resident.capacity
    return capacity


def capacity_by_variant(residents: Mapping[str, ResidentCapacity]) -> Counter[str]:
    capacity: Counter[str] = Counter()
    for resident in residents.values():
        capacity[resident.variant.id] += resident.capacity
    return capacity


def evenly(problem: Problem, residents: Mapping[str, ResidentCapacity]) -> dict[str, float]:
    """Items/s by device that keep all devices of an application equally busy."""
    demand = {a.id: a.demand for a in problem.applications}
    load = {q: min(demand[q] / c, 1.0) if c > 0 else 0.0 for q, c in capacity_by_application(residents).items()}
    return {device: resident.capacity * load[resident.variant.application] for device, resident in residents.items()}


def best_first(problem: Problem, residents: Mapping[str, ResidentCapacity]) -> dict[str, float]:
    """Items/s by device that fill the most accurate residents first."""
    left = {a.id: a.demand for a in problem.applications}
    capacity = capacity_by_variant(residents)
    variants = {resident.variant.id: resident.variant for resident in residents.values()}
    load: dict[str, float] = {}
    for variant in sorted(variants.values(), key=lambda v: (-v.accuracy, v.id)):
        rate = max(0.0, min(left[variant.application], capacity[variant.id]))
        left[variant.application] -= rate
        load[variant.id] = rate / capacity[variant.id] if rate > 0 else 0.0
    return {device: resident.capacity * load[resident.variant.id] for device, resident in residents.items()}


def allocation_with(
    problem: Problem, residents: Mapping[str, ResidentCapacity], rates: Mapping[str, float], why: str, why_left_out: str
) -> Allocation:
    """The allocation with these residents and rates (items/s), both by device.

    ``why`` explains the strategy, ``why_left_out`` why demand beyond the residents' capacity is left out.
    """
    nothing = {a.id for a in problem.applications if a.demand <= NOTHING}
    placements = []
    for device in problem.devices:
        resident = residents.get(device.id)
        if resident is not None:
            rate = 0.0 if resident.variant.application in nothing else rates[device.id]
            share = min(resident.time_share(rate), 1.0)
            placements.append(Placement(device.id, resident.variant.id, rate, resident.max_batch, share))
    made = outcome(problem, placements)
    best: dict[str, float] = {}
    for variant in problem.variants:
        best[variant.application] = max(best.get(variant.application, 0.0), variant.accuracy)
    total = sum(a.weight * a.demand for a in problem.applications)
    most = sum(a.weight * a.demand * best.get(a.id, 0.0) for a in problem.applications) / total if total > 0 else 0.0
    bound = max(made.objective, most)
    return replace(
        made,
        bound=bound,
        gap=(bound - made.objective) / made.objective if made.objective > 0 else 0.0,
        status="heuristic" if placements else "empty",
        reasons=(why, *_left_out(problem, made, residents, why_left_out)),
    )


def one_by_one(variant: CandidateVariant) -> CandidateVariant:
    profiles = {
        kind: LatencyProfile(
            ((1, profile.points[0][1]),),
            profile.memory_bytes,
            profile.load_s,
            tuple((1, longest_s) for _, longest_s in profile.slowest[:1]),
        )
        for kind, profile in variant.profiles.items()
        if profile.points
    }
    return replace(variant, profiles=profiles)


def _left_out(
    problem: Problem, allocation: Allocation, residents: Mapping[str, ResidentCapacity], why_left_out: str
) -> Iterator[str]:
    for application in problem.applications:
        missing = allocation.left_out[application.id]
        if missing <= 0:
            continue
        serving = [resident for resident in residents.values() if resident.variant.application == application.id]
        count = "1 device serves" if len(serving) == 1 else f"{len(serving)} devices serve"
        able = f"its {count} at most {sum(resident.capacity for resident in serving):.1f} items/s"
        yield (
            f"{application.id}: {missing:.3g} of {application.demand:.3g} items/s are left out: "
            f"{able if serving else 'no device serves it'}. {why_left_out}"
        )
