"""From residents on concrete devices to an :class:`Allocation`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .capacity import Capacity, dedicated_capacity, profile_on
from .groups import usable
from .problem import Allocation, CandidateVariant, DeviceResources, Placement, Problem

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
    residents = [s for s in residents if rates.get(s.variant.id, 0.0) > 0 and s.capacity > 0]
    totals = _clipped({a.id: a.demand for a in problem.applications}, residents, rates)
    residents = [s for s in residents if totals[s.variant.id] > 0]
    _use_spare_devices(problem, residents, totals)
    capacity = _capacity(residents)
    order = {device.id: i for i, device in enumerate(problem.devices)}
    placements = []
    for resident in sorted(residents, key=lambda s: (order[s.device.id], s.variant.id)):
        rate = totals[resident.variant.id] * resident.capacity / capacity[resident.variant.id]
        share = min(resident.time_share(rate), 1.0)
        placements.append(Placement(resident.device.id, resident.variant.id, rate, resident.max_batch, share))
    made = outcome(problem, placements)
    status = "empty" if not placements else "optimal" if proven else "feasible"
    return replace(made, objective=objective, bound=bound, gap=gap, status=status)


def outcome(problem: Problem, placements: Sequence[Placement]) -> Allocation:
    """What placements serve, leave out and load, and their weighted accuracy."""
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


def _capacity(residents: Iterable[ResidentCapacity]) -> Counter[str]:
    capacity: Counter[str] = Counter()
    for resident in residents:
        capacity[resident.variant.id] += resident.capacity
    return capacity


def _clipped(
    demand: Mapping[str, float], residents: list[ResidentCapacity], rates: Mapping[str, float]
) -> dict[str, float]:
    capacity, owner = _capacity(residents), {s.variant.id: s.variant.application for s in residents}
    totals = {variant: min(rates[variant], most) for variant, most in capacity.items()}
    sums: Counter[str] = Counter()
    for variant, rate in totals.items():
        sums[owner[variant]] += rate
    for variant, rate in totals.items():
        total, most = sums[owner[variant]], demand[owner[variant]]
        # Within tolerance of the demand, the sum becomes the demand itself.
        if total > most * (1 - TOLERANCE):
            rate = min(rate * most / total, capacity[variant])
        totals[variant] = rate if rate > most * TOLERANCE else 0.0
    return totals


def _use_spare_devices(problem: Problem, residents: list[ResidentCapacity], totals: dict[str, float]) -> None:
    """Give each idle device demand that is left out, else some of the busiest work.

    Demand that is left out must fit there. Else the device gets a share of the busiest variant's work, which serves no
    more items but shortens queues. A device that has a busy variant loaded keeps it, unless another one is busier by
    :data:`LOAD_THRESHOLD`, so that plans do not flap over spare devices.
    """
    applications = {a.id: a for a in problem.applications}
    left_out = {a.id: a.demand for a in problem.applications}
    for resident in {s.variant.id: s for s in residents}.values():
        left_out[resident.variant.application] -= totals[resident.variant.id]
    left_out = {
        name: left if left > applications[name].demand * 2 * TOLERANCE else 0.0 for name, left in left_out.items()
    }
    busy = {s.device.id for s in residents}
    for device in problem.devices:
        if device.id in busy or not usable(device):
            continue
        best: tuple | None = None
        capacity = _capacity(residents)
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
