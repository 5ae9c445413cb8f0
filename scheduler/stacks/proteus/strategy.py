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

from dataclasses import dataclass

from pyscipopt import Model, quicksum

from scheduler.allocation.assign import keep_loaded
from scheduler.allocation.capacity import Capacity, dedicated_capacity, profile_on
from scheduler.allocation.groups import IdenticalDevices, grouped
from scheduler.allocation.problem import Allocation, CandidateVariant, Problem
from scheduler.allocation.residents import ResidentCapacity, assemble, dedicated_resident, outcome
from scheduler.allocation.solver import Budget, Solution, maximise, names, new_model

#: Points of accuracy (percent) that all loads together may cost at most.
PRICE_OF_ALL_LOADS = 0.05
#: Relative tolerance of the second solve on what is served: the solver's own.
SERVED_TOLERANCE = 1e-6


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
        self.model.addCons(self.served >= share - SERVED_TOLERANCE * share)


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
    demand = {a.id: a.demand for a in problem.applications}
    residents: list[ResidentCapacity] = []
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
        hosts = keep_loaded(group.devices, counts)
        by_id = {d.id: d for d in group.devices}
        residents += [dedicated_resident(by_id[d], by_name[m].variant, by_name[m].capacity) for d, m in hosts.items()]
    return assemble(
        problem,
        residents,
        rates,
        objective=second.objective,
        bound=max(second.bound, second.objective),
        gap=max(relative_gap(second), relative_gap(first)),
        proven=second.proven and (first is None or first.proven),
    )


def relative_gap(solution: Solution | None) -> float:
    """0 below the solver's precision and without a bound; 1 where the objective is 0."""
    if solution is None or solution.bound <= 0:
        return 0.0
    if solution.objective <= 0:
        return 1.0
    gap = (solution.bound - solution.objective) / solution.objective
    return gap if gap > 1e-9 else 0.0
