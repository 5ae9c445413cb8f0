"""Proteus' resource allocation, Eq. 1 to 7, solved exactly.

Identical devices are aggregated. Source: Ahmad et al., "Proteus" (ASPLOS '24), Section 4. Differences from the printed
formulation:

- Identical devices are counted, not named: n[g,m] is the sum of x[d,m] over the devices of group g, an integer. Any
  counts with sum_m n[g,m] <= |g| can be assigned to the group's devices, so nothing is lost, and the solver avoids
  |g|! symmetric copies of each solution.
- y[g,m] is the share of the application's demand that variant m serves in group g: the paper's y[d,q] restricted to
  the variant hosted (Eq. 3 is then built in), with z = y * s_q.
- Eq. 7 as printed multiplies z, already in items/s, by s_q once more; the objective here is the sum of A * z.
- Where no plan serves all demand the paper lowers the demand step by step. Here a first solve finds the most weighted
  items that can be served, and a second the best accuracy while serving that much.
- A small price on each load, together at most :data:`PRICE_OF_ALL_LOADS` points of accuracy, selects the plan with
  the fewest loads among equal ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyscipopt import Model, quicksum

from scheduler.allocation.assign import keep_loaded
from scheduler.allocation.capacity import Capacity, dedicated_capacity, profile_on
from scheduler.allocation.groups import IdenticalDevices, grouped
from scheduler.allocation.outcome import TOLERANCE, outcome
from scheduler.allocation.problem import Allocation, CandidateVariant, Problem
from scheduler.allocation.solver import Budget, Solution, maximise, names, new_model

from ..dedicated import DedicatedChoices, ResidentCapacity, allocation_with

#: Points of accuracy (percent) that all loads together may cost at most.
PRICE_OF_ALL_LOADS = 0.05
#: A spare device loads a new variant only if its load exceeds that of the best loaded one by this (0 to 1).
LOAD_THRESHOLD = 0.25


@dataclass(frozen=True)
class DedicatedOption:
    group: int
    variant: CandidateVariant
    capacity: Capacity
    rate: float
    """items/s on one device of the group, its availability counted"""


def dedicated_options(problem: Problem, groups: list[IdenticalDevices]) -> list[DedicatedOption]:
    """Return every useful way to dedicate a device.

    These are for applications with demand, without dominated ones. In one group, for one application, a variant that is
    neither faster nor more accurate than another can be exchanged for it without loss; it is kept only where it is
    loaded, since a load costs.
    """
    slo = {a.id: a.slo_s for a in problem.applications if a.demand > 0}
    options = []
    capacities: dict[tuple[int, float], Capacity | None] = {}
    for g, group in enumerate(groups):
        loaded = frozenset().union(*(d.loaded for d in group.devices))
        by_name: dict[str, list[DedicatedOption]] = {}
        for variant in problem.variants:
            if variant.application not in slo:
                continue
            profile = profile_on(variant, group.one)
            if profile is None:
                continue
            # One profile serves all devices of its type.
            key = (id(profile), slo[variant.application])
            if key not in capacities:
                capacities[key] = dedicated_capacity(profile, slo[variant.application])
            capacity = capacities[key]
            if capacity is not None:
                option = DedicatedOption(g, variant, capacity, capacity.rate * group.one.available)
                by_name.setdefault(variant.application, []).append(option)
        for rivals in by_name.values():
            rivals.sort(key=lambda o: (-o.variant.accuracy, -o.rate))
            fastest = 0.0
            for option in rivals:
                if option.rate > fastest or option.variant.id in loaded:
                    options.append(option)
                fastest = max(fastest, option.rate)
    return options


class _Formulation:
    def __init__(self, problem: Problem, groups: list[IdenticalDevices], options: list[DedicatedOption]):
        self.model: Model = new_model()
        model = self.model
        demand = {a.id: a.demand for a in problem.applications if a.demand > 0}
        worth = {a.id: a.demand * a.weight for a in problem.applications if a.demand > 0}
        total = sum(worth.values())
        self.shares: dict[str, list] = {q: [] for q in demand}
        hosted: list[list] = [[] for _ in groups]
        served, accuracy, loads = [], [], []
        kept_by_set: dict[tuple[int, frozenset[str]], list] = {}
        for option in options:
            g, m, q = option.group, option.variant.id, option.variant.application
            n = model.addVar(names(("n", g, m)), vtype="I", lb=0, ub=len(groups[g]))
            y = model.addVar(names(("y", g, m)), lb=0, ub=1)
            # Eq. 5, summed over the group; at most the demand, which keeps the relaxation tight.
            model.addCons(y <= min(option.rate / demand[q], 1.0) * n)
            hosted[g].append(n)
            self.shares[q].append(y)
            served.append(worth[q] / total * y)
            accuracy.append(worth[q] / total * option.variant.accuracy * y)
            kept = []
            for index, (loaded, count) in enumerate(groups[g].by_loaded().items()):
                if m in loaded:
                    k = model.addVar(names(("k", g, m, index)), lb=0, ub=count)
                    kept_by_set.setdefault((g, loaded), []).append((k, count))
                    kept.append(k)
            if kept:
                model.addCons(quicksum(kept) <= n)
            loads.append(n - quicksum(kept))
        for group, variables in zip(groups, hosted, strict=True):
            if variables:
                model.addCons(quicksum(variables) <= len(group))  # Eq. 1
        for pairs in kept_by_set.values():
            model.addCons(quicksum(k for k, _ in pairs) <= pairs[0][1])
        for variables in self.shares.values():
            if variables:
                model.addCons(quicksum(variables) <= 1)  # Eq. 2
        devices = sum(len(group) for group in groups)
        self.served = quicksum(served)
        self.objective = quicksum(accuracy) - PRICE_OF_ALL_LOADS / devices * quicksum(loads)

    def serve_all(self) -> None:
        for variables in self.shares.values():
            self.model.addCons(quicksum(variables) == 1)

    def serve(self, share: float) -> None:
        self.model.addCons(self.served >= share - TOLERANCE * share)


def solve(problem: Problem) -> Allocation:
    """Return the best allocation that dedicates each device to one variant at most.

    It has no reasons. Served weighted items come first, accuracy second, few loads third. ``objective`` and ``bound``
    are percent: the sum over the demand of weight * accuracy / weighted demand, less the price of loads.
    """
    budget = Budget(problem.time_limit_s)
    groups = grouped(problem.devices)
    options = dedicated_options(problem, groups)
    if not options:
        return outcome(problem, ())
    active = {a.id for a in problem.applications if a.demand > 0}
    first: Solution | None = None
    second: Solution | None = None
    if len(active) <= sum(map(len, groups)) and active == {o.variant.application for o in options}:
        formulation = _Formulation(problem, groups, options)
        formulation.serve_all()
        second = maximise(formulation.model, formulation.objective, budget.left() * 0.5, problem.gap)
    if second is None:
        formulation = _Formulation(problem, groups, options)
        first = maximise(formulation.model, formulation.served, budget.left() * 0.6, problem.gap)
        if first is None or first.objective <= 0:
            return outcome(problem, ())
        formulation = _Formulation(problem, groups, options)
        formulation.serve(first.objective)
        second = maximise(formulation.model, formulation.objective, budget.left(), problem.gap, start=first.values)
    if second is None:
        second = Solution(first.values, 0.0, 100.0, False)
    return _on_devices(problem, groups, options, first, second)


def _on_devices(problem: Problem, groups, options, first: Solution | None, second: Solution) -> Allocation:
    """The allocation in which all devices of a variant are equally busy, and idle ones get useful work."""
    choices = DedicatedChoices(problem)
    demand = {a.id: a.demand for a in problem.applications}
    residents: dict[str, ResidentCapacity] = {}
    rates: dict[str, float] = {}
    for g, group in enumerate(groups):
        by_name = {o.variant.id: o for o in options if o.group == g}
        counts = {}
        for m, option in by_name.items():
            count = round(second.values[names(("n", g, m))])
            rate = second.values[names(("y", g, m))] * demand[option.variant.application]
            if count > 0 and rate > 0:
                counts[m] = count
                rates[m] = rates.get(m, 0.0) + rate
        for device, m in keep_loaded(group.devices, counts).items():
            residents[device] = choices.resident(choices.devices[device], by_name[m].variant)
    totals = _clipped(demand, residents, rates)
    residents = {device: resident for device, resident in residents.items() if totals[resident.variant.id] > 0}
    _use_spare_devices(problem, choices, residents, totals)
    capacity = _capacity(residents)
    by_device = {
        device: totals[resident.variant.id] * resident.capacity / capacity[resident.variant.id]
        for device, resident in residents.items()
    }
    proven = second.proven and (first is None or first.proven)
    return replace(
        allocation_with(problem, residents, by_device, "", ""),
        objective=second.objective,
        bound=max(second.bound, second.objective),
        gap=max(relative_gap(second), relative_gap(first)),
        status="empty" if not residents else "optimal" if proven else "feasible",
        reasons=(),
    )


def _capacity(residents: Mapping[str, ResidentCapacity]) -> Counter[str]:
    capacity: Counter[str] = Counter()
    for resident in residents.values():
        capacity[resident.variant.id] += resident.capacity
    return capacity


def _clipped(
    demand: Mapping[str, float], residents: Mapping[str, ResidentCapacity], rates: Mapping[str, float]
) -> dict[str, float]:
    """Items/s by variant within capacities and demand, so that solver tolerances never reach a plan."""
    capacity, owner = _capacity(residents), {s.variant.id: s.variant.application for s in residents.values()}
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


def _use_spare_devices(
    problem: Problem, choices: DedicatedChoices, residents: dict[str, ResidentCapacity], totals: dict[str, float]
) -> None:
    """Give each idle device demand that is left out, else some of the busiest work.

    Demand that is left out must fit there. Else the device gets a share of the busiest variant's work, which serves no
    more items but shortens queues. A device that has a busy variant loaded keeps it, unless another one is busier by
    :data:`LOAD_THRESHOLD`, so that plans do not flap over spare devices.
    """
    weight = {a.id: a.weight for a in problem.applications}
    left_out = {a.id: a.demand for a in problem.applications}
    for resident in {s.variant.id: s for s in residents.values()}.values():
        left_out[resident.variant.application] -= totals[resident.variant.id]
    left_out = {
        a.id: left if (left := left_out[a.id]) > a.demand * 2 * TOLERANCE else 0.0 for a in problem.applications
    }
    for device in problem.devices:
        if device.id in residents:
            continue
        best: tuple | None = None
        capacity = _capacity(residents)
        for index, variant in enumerate(problem.variants):
            resident = choices.resident(device, variant)
            if resident is None:
                continue
            extra = min(resident.capacity, left_out[variant.application])
            if extra > 0:
                score = (1, weight[variant.application] * extra, variant.accuracy, variant.id in device.loaded, -index)
            elif totals.get(variant.id, 0.0) > 0:
                load = totals[variant.id] / capacity[variant.id]
                score = (0, load + LOAD_THRESHOLD * (variant.id in device.loaded), 0.0, False, -index)
            else:
                continue
            if best is None or score > best[0]:
                best = score, resident, extra
        if best is not None:
            _, residents[device.id], extra = best
            variant = residents[device.id].variant
            totals[variant.id] = totals.get(variant.id, 0.0) + extra
            left_out[variant.application] -= extra


def relative_gap(solution: Solution | None) -> float:
    """0 below the solver's precision and without a bound; 1 where the objective is 0."""
    if solution is None or solution.bound <= 0:
        return 0.0
    if solution.objective <= 0:
        return 1.0
    gap = (solution.bound - solution.objective) / solution.objective
    return gap if gap > 1e-9 else 0.0
