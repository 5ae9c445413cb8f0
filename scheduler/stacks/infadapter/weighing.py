"""InfAdapter's Eq. 1: accuracy against cores and loads, solved by SCIP.

The published objective, alpha * AA - beta * RC - gamma * LC, is of one application. Here it is summed up over
applications, which share the devices and the budget; with one application it is the published one. AA is the mean
accuracy of all demand, RC the cores in use, LC the longest load. A variant is to be loaded where it gets more devices
than it has. Where not all demand can be served, the most weighted items are served first, then Eq. 1 is solved with
what is left out counting 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyscipopt import Model, quicksum

from scheduler.allocation.problem import Problem
from scheduler.allocation.solver import Budget, Solution, maximise, names, new_model

from ..dedicated import ResidentCapacity
from .capacity_line import CapacityLine

#: relative loss of served items that the second of two solves may have: the solver's own tolerance
SLACK = 1e-6
#: search nodes of a solve: a fixed bound before the time limit, so that runs repeat; the paper's world needs a few
NODES = 1000


@dataclass(frozen=True)
class CoreOption:
    """A variant on some of the devices of a group, by its number.

    Attributes:
        resident: the variant alone on one of these devices.
        most: devices in the group.
        kept: devices there that run it under the plan in force.
        line: of an instance on several of these devices together; None: they serve what they serve one by one.
    """

    group: int
    resident: ResidentCapacity
    most: int
    kept: int
    line: CapacityLine | None

    @property
    def key(self) -> tuple[int, str]:
        return self.group, self.resident.variant.id

    @property
    def cores(self) -> int:
        return self.resident.device.cores

    @property
    def load_s(self) -> float:
        return self.resident.variant.profiles[self.resident.device.type].load_s

    def capacity(self, devices: int) -> float:
        alone = devices * self.resident.capacity
        if self.line is None or not devices:
            return alone
        return min(alone, self.line.at(devices * self.cores) * self.resident.device.available)


#: devices by option
Counts = Mapping[tuple[int, str], int]


def weigh(problem: Problem, options: Sequence[CoreOption], single: bool = False) -> tuple[Counts, Solution] | None:
    """The devices that maximise Eq. 1; None: none were found in time.

    The solution is of the weighted share served where only the first of two solves found an answer.

    Args:
        single: each application gets one variant at most.
    """
    budget = Budget(problem.time_limit_s)
    whole = _Formulation(problem, options, single)
    for application in problem.applications:
        whole.model.addCons(whole.share[application.id] == 1)
    solution = maximise(whole.model, whole.objective, budget.left() * 0.4, problem.gap, nodes=NODES)
    if solution is None:
        first = _Formulation(problem, options, single)
        most = maximise(first.model, first.served, budget.left() * 0.5, problem.gap, nodes=NODES)
        if most is None:
            return None
        second = _Formulation(problem, options, single)
        second.model.addCons(second.served >= most.objective * (1 - SLACK))
        solution = maximise(second.model, second.objective, budget.left(), problem.gap, most.values, NODES) or most
    return {option.key: round(solution.values[names(("n", *option.key))]) for option in options}, solution


class _Formulation:
    """A model of Eq. 1's constraints.

    Attributes:
        share: by application, how much of its demand is served (0 to 1).
        served: weighted items/s, in units of all of them.
        objective: Eq. 1.
    """

    def __init__(self, problem: Problem, options: Sequence[CoreOption], single: bool) -> None:
        self.model: Model = new_model()
        self._demand = {a.id: a.demand for a in problem.applications}
        self._devices, self._parts = {}, {}
        for option in options:
            self._add(option)
        by_application = {a.id: [] for a in problem.applications}
        for option in options:
            by_application[option.resident.variant.application].append(option)
        self.share = {
            name: quicksum(self._parts[option.key] for option in offered) for name, offered in by_application.items()
        }
        for share in self.share.values():
            self.model.addCons(share <= 1)
        for group in {option.group: option.most for option in options}.items():
            counts = [self._devices[option.key] for option in options if option.group == group[0]]
            self.model.addCons(quicksum(counts) <= group[1])
        cores = quicksum(option.cores * self._devices[option.key] for option in options)
        if problem.costs.budget is not None:
            self.model.addCons(cores <= problem.costs.budget)
        if single:
            for offered in by_application.values():
                self._one_of(offered)
        weight = {a.id: a.weight for a in problem.applications}
        total = sum(weight[name] * demand for name, demand in self._demand.items()) or 1.0
        self.served = quicksum(weight[name] * self._demand[name] / total * share for name, share in self.share.items())
        accuracy = quicksum(
            weight[option.resident.variant.application] * option.resident.variant.accuracy * self._parts[option.key]
            for option in options
        )
        loads = quicksum(self._longest_load(name, offered) for name, offered in by_application.items())
        costs = problem.costs
        self.objective = costs.accuracy * accuracy - costs.core * cores - costs.load_s * loads

    def _add(self, option: CoreOption) -> None:
        model, key = self.model, option.key
        devices = self._devices[key] = model.addVar(names(("n", *key)), vtype="I", lb=0, ub=option.most)
        part = self._parts[key] = model.addVar(names(("part", *key)), lb=0, ub=1)
        demand = self._demand[option.resident.variant.application]
        # Without any demand, too, something must be there to serve.
        model.addCons(part <= devices)
        model.addCons(demand * part <= option.resident.capacity * devices)
        if option.line is not None:
            used = model.addVar(names(("used", *key)), vtype="B")
            model.addCons(devices <= option.most * used)
            available = option.resident.device.available
            slope = option.line.slope * option.cores * available
            model.addCons(demand * part <= option.line.intercept * available * used + slope * devices)

    def _one_of(self, options: Sequence[CoreOption]) -> None:
        by_variant: dict[str, list[CoreOption]] = {}
        for option in options:
            by_variant.setdefault(option.resident.variant.id, []).append(option)
        chosen = []
        for variant, offered in by_variant.items():
            chosen.append(self.model.addVar(names(("chosen", variant)), vtype="B"))
            for option in offered:
                self.model.addCons(self._devices[option.key] <= option.most * chosen[-1])
        self.model.addCons(quicksum(chosen) <= 1)

    def _longest_load(self, application: str, options: Sequence[CoreOption]):
        longest = self.model.addVar(names(("load", application)), lb=0)
        for option in options:
            if option.load_s > 0 and option.kept < option.most:
                loads = self.model.addVar(names(("loads", *option.key)), vtype="B")
                self.model.addCons(self._devices[option.key] - option.kept <= (option.most - option.kept) * loads)
                self.model.addCons(longest >= option.load_s * loads)
        return longest
