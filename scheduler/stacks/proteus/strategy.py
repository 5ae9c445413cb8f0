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
from dataclasses import replace

from pyscipopt import Model, quicksum

from scheduler.allocation.groups import IdenticalDevices, grouped
from scheduler.allocation.outcome import TOLERANCE, outcome
from scheduler.allocation.problem import Allocation, Problem
from scheduler.allocation.solver import Budget, Solution, maximise, names, new_model

from ..dedicated import DedicatedChoices, ResidentCapacity, allocation_with, capacity_by_variant, placed

#: Points of accuracy (percent) that all loads together may cost at most.
PRICE_OF_ALL_LOADS = 0.05
#: A spare device loads a new variant only if its load exceeds that of the best loaded one by this (0 to 1).
LOAD_THRESHOLD = 0.25


def dedicated_options(
    problem: Problem, choices: DedicatedChoices, groups: list[IdenticalDevices]
) -> dict[tuple[int, str], ResidentCapacity]:
    """Return every useful way to dedicate a device, by its group and variant.

    These are for applications with demand, without dominated ones. In one group, for one application, a variant that is
    neither faster nor more accurate than another can be exchanged for it without loss; it is kept only where it is
    loaded, since a load costs.
    """
    asked = {a.id for a in problem.applications if a.demand > 0}
    rivals: dict[tuple[int, str], list[ResidentCapacity]] = {}
    for (g, _), resident in choices.options(groups).items():
        if resident.variant.application in asked:
            rivals.setdefault((g, resident.variant.application), []).append(resident)
    useful = {}
    for (g, _), residents in rivals.items():
        loaded = frozenset().union(*(d.loaded for d in groups[g].devices))
        fastest = 0.0
        for resident in sorted(residents, key=lambda s: (-s.variant.accuracy, -s.capacity)):
            if resident.capacity > fastest or resident.variant.id in loaded:
                useful[g, resident.variant.id] = resident
            fastest = max(fastest, resident.capacity)
    return useful


class _Formulation:
    def __init__(
        self, problem: Problem, groups: list[IdenticalDevices], options: dict[tuple[int, str], ResidentCapacity]
    ):
        self.model: Model = new_model()
        model = self.model
        demand = {a.id: a.demand for a in problem.applications if a.demand > 0}
        worth = {a.id: a.demand * a.weight for a in problem.applications if a.demand > 0}
        total = sum(worth.values())
        self.shares: dict[str, list] = {q: [] for q in demand}
        hosted: list[list] = [[] for _ in groups]
        served, accuracy, loads = [], [], []
        kept_by_set: dict[tuple[int, frozenset[str]], list] = {}
        by_loaded = [Counter(device.loaded for device in group.devices) for group in groups]
        for (g, m), option in options.items():
            q = option.variant.application
            n = model.addVar(names(("n", g, m)), vtype="I", lb=0, ub=len(groups[g]))
            y = model.addVar(names(("y", g, m)), lb=0, ub=1)
            # Eq. 5, summed over the group; at most the demand, which keeps the relaxation tight.
            model.addCons(y <= min(option.capacity / demand[q], 1.0) * n)
            hosted[g].append(n)
            self.shares[q].append(y)
            served.append(worth[q] / total * y)
            accuracy.append(worth[q] / total * option.variant.accuracy * y)
            kept = []
            for index, (loaded, count) in enumerate(by_loaded[g].items()):
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
    choices = DedicatedChoices(problem)
    options = dedicated_options(problem, choices, groups)
    if not options:
        return outcome(problem, ())
    active = {a.id for a in problem.applications if a.demand > 0}
    first: Solution | None = None
    second: Solution | None = None
    if len(active) <= sum(map(len, groups)) and active == {o.variant.application for o in options.values()}:
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
    return _on_devices(problem, choices, groups, options, first, second)


def _on_devices(
    problem: Problem, choices: DedicatedChoices, groups, options, first: Solution | None, second: Solution
) -> Allocation:
    """The allocation in which all devices of a variant are equally busy, and idle ones get useful work."""
    demand = {a.id: a.demand for a in problem.applications}
    counts: dict[tuple[int, str], int] = {}
    rates: Counter[str] = Counter()
    for (g, m), option in options.items():
        count = round(second.values[names(("n", g, m))])
        rate = second.values[names(("y", g, m))] * demand[option.variant.application]
        if count > 0 and rate > 0:
            counts[g, m] = count
            rates[m] += rate
    residents = placed(choices, groups, counts)
    totals = _clipped(demand, residents, rates)
    residents = {device: resident for device, resident in residents.items() if totals[resident.variant.id] > 0}
    _use_spare_devices(problem, choices, residents, totals)
    capacity = capacity_by_variant(residents)
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


def _clipped(
    demand: Mapping[str, float], residents: Mapping[str, ResidentCapacity], rates: Mapping[str, float]
) -> dict[str, float]:
    """Items/s by variant within capacities and demand, so that solver tolerances never reach a plan."""
    capacity, owner = capacity_by_variant(residents), {s.variant.id: s.variant.application for s in residents.values()}
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
        capacity = capacity_by_variant(residents)
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
