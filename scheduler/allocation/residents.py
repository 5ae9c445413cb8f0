"""From residents on concrete devices to an :class:`Allocation`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .capacity import Capacity, dedicated_capacity, profile_on
from .groups import usable
from .problem import Allocation, ApplicationDemand, CandidateVariant, DeviceResources, Placement, Problem

#: Relative tolerance on rates: the solver's own feasibility tolerance.
TOLERANCE = 1e-6
#: A spare device loads a new variant only if its load exceeds that of the best loaded one by this (0 to 1).
LOAD_THRESHOLD = 0.25


@dataclass(frozen=True)
class ResidentCapacity:
    device: DeviceResources
    variant: CandidateVariant
    capacity: float
    max_batch: int
    full_rate: float = 0.0

    def time_share(self, rate: float) -> float:
        return rate / self.full_rate


def dedicated_resident(device: DeviceResources, variant: CandidateVariant, capacity: Capacity) -> ResidentCapacity:
    return ResidentCapacity(device, variant, capacity.rate * device.available, capacity.batch, full_rate=capacity.rate)


def assemble(
    problem: Problem,
    residents: Iterable[ResidentCapacity],
    rates: Mapping[str, float],
    *,
    objective: float = 0.0,
    bound: float = 0.0,
    gap: float = 0.0,
    proven: bool = True,
) -> Allocation:
    """Return the allocation in which variant m serves ``rates[m]`` items/s.

    The rate is divided over the variant's residents by their capacities, so that all its devices are equally busy.
    Residents without a rate are dropped, and idle devices get useful work.

    Rates are clipped to the residents' capacities and to the demand, so that solver tolerances never reach a plan.
    """
    applications = {a.id: a for a in problem.applications}
    residents = [s for s in residents if rates.get(s.variant.id, 0.0) > 0 and s.capacity > 0]
    totals = _clipped(applications, residents, rates)
    residents = [s for s in residents if totals[s.variant.id] > 0]
    left_out = _left_out(applications, residents, totals)
    _use_spare_devices(problem, applications, residents, totals, left_out)

    capacity: dict[str, float] = {}
    for resident in residents:
        capacity[resident.variant.id] = capacity.get(resident.variant.id, 0.0) + resident.capacity
    order = {device.id: i for i, device in enumerate(problem.devices)}
    placements = []
    for resident in sorted(residents, key=lambda s: (order[s.device.id], s.variant.id)):
        rate = totals[resident.variant.id] * resident.capacity / capacity[resident.variant.id]
        placements.append(
            Placement(
                resident.device.id, resident.variant.id, rate, resident.max_batch, min(resident.time_share(rate), 1.0)
            )
        )
    made = outcome(problem, placements)
    status = "empty" if not placements else "optimal" if proven else "feasible"
    return replace(made, objective=objective, bound=bound, gap=gap, status=status)


def outcome(problem: Problem, placements: Sequence[Placement]) -> Allocation:
    """What placements serve, leave out and load; the objective is the weighted accuracy of what they serve."""
    applications = {a.id: a for a in problem.applications}
    variants = {v.id: v for v in problem.variants}
    loaded = {device.id: device.loaded for device in problem.devices}
    rates = dict.fromkeys(applications, 0.0)
    items = accurate = points = 0.0
    for placement in placements:
        variant, rate = variants[placement.variant], placement.rate
        rates[variant.application] += rate
        items += rate
        accurate += rate * variant.accuracy
        points += applications[variant.application].weight * rate * variant.accuracy
    left_out = {
        name: short if (short := a.demand - rates[name]) > a.demand * 2 * TOLERANCE else 0.0
        for name, a in applications.items()
    }
    demand = sum(a.weight * a.demand for a in problem.applications)
    objective = points / demand if demand > 0 else 0.0
    return Allocation(
        placements=tuple(placements),
        served={name: a.demand - left_out[name] for name, a in applications.items()},
        left_out=left_out,
        accuracy=accurate / items if items > 0 else 0.0,
        objective=objective,
        bound=objective,
        status="optimal" if placements else "empty",
        moves=sum([p.variant not in loaded[p.device] for p in placements]),
    )


def _clipped(
    applications: Mapping[str, ApplicationDemand], residents: list[ResidentCapacity], rates: Mapping[str, float]
):
    capacity: dict[str, float] = {}
    owner: dict[str, str] = {}
    for resident in residents:
        capacity[resident.variant.id] = capacity.get(resident.variant.id, 0.0) + resident.capacity
        owner[resident.variant.id] = resident.variant.application
    totals = {v: min(rates[v], c) for v, c in capacity.items()}
    sums: dict[str, float] = {}
    for variant, rate in totals.items():
        sums[owner[variant]] = sums.get(owner[variant], 0.0) + rate
    for variant in totals:
        total, demand = sums[owner[variant]], applications[owner[variant]].demand
        # Within tolerance of the demand, the sum becomes the demand itself.
        if total > demand or total > demand * (1 - TOLERANCE):
            totals[variant] = min(totals[variant] * demand / total, capacity[variant])
    return {v: rate for v, rate in totals.items() if rate > applications[owner[v]].demand * TOLERANCE} | {
        v: 0.0 for v, rate in totals.items() if rate <= applications[owner[v]].demand * TOLERANCE
    }


def _left_out(
    applications: Mapping[str, ApplicationDemand], residents: list[ResidentCapacity], totals: Mapping[str, float]
):
    owner = {s.variant.id: s.variant.application for s in residents}
    served = dict.fromkeys(applications, 0.0)
    for variant, rate in totals.items():
        if variant in owner:
            served[owner[variant]] += rate
    out = {}
    for name, application in applications.items():
        missing = application.demand - served[name]
        out[name] = missing if missing > application.demand * 2 * TOLERANCE else 0.0
    return out


def _use_spare_devices(
    problem, applications, residents: list[ResidentCapacity], totals: dict[str, float], left_out: dict[str, float]
):
    """Give each idle device demand that is left out, else some of the busiest work.

    Demand that is left out must fit there. Else the device gets a share of the busiest variant's work, which serves no
    more items but shortens queues. A device that has a busy variant loaded keeps it, unless another one is busier by
    :data:`LOAD_THRESHOLD`, so that plans do not flap over spare devices.
    """
    busy = {s.device.id for s in residents}
    for device in problem.devices:
        if device.id in busy or not usable(device):
            continue
        best: tuple | None = None
        capacity: dict[str, float] = {}
        for resident in residents:
            capacity[resident.variant.id] = capacity.get(resident.variant.id, 0.0) + resident.capacity
        for index, variant in enumerate(problem.variants):
            application = applications[variant.application]
            profile = profile_on(variant, device)
            found = dedicated_capacity(profile, application.slo_s) if profile is not None else None
            if found is None:
                continue
            resident = dedicated_resident(device, variant, found)
            gain = application.weight * min(resident.capacity, left_out[application.id])
            if gain > 0:
                score = (1, gain, variant.accuracy, variant.id in device.loaded, -index)
            elif totals.get(variant.id, 0.0) > 0:
                load = totals[variant.id] / capacity[variant.id]
                score = (0, load + LOAD_THRESHOLD * (variant.id in device.loaded), 0.0, False, -index)
            else:
                continue
            if best is None or score > best[0]:
                best = (score, resident, min(resident.capacity, left_out[application.id]))
        if best is not None:
            _, resident, extra = best
            residents.append(resident)
            totals[resident.variant.id] = totals.get(resident.variant.id, 0.0) + extra
            left_out[resident.variant.application] -= extra
