"""Device sharing: an allocation in which a device may hold several variants that take turns.

For when dedicating devices cannot serve everything: more applications than devices, or demand that rounding to whole
devices strands. See :mod:`.turns` for the rules, :mod:`.sharing_model` for the MILP.

Small problems are solved over concrete devices, which is exact. Larger ones are solved over groups of identical
devices first; the counts are packed, and the rest of the time goes into a MILP over concrete devices that starts from
the packed plan and may exchange variants where they are. The certified gap compares the packed plan with a bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from .groups import grouped, singles
from .packing import pack, seats_of
from .problem import Allocation, Problem
from .proteus import SERVED_TOLERANCE, relative_gap
from .seats import assemble
from .sharing_model import Choices, SharingModel, choices, dedicated_names, shared_names
from .solver import Budget, Solution, maximise, relaxed_bound

#: Options (device, turn gap, variant) up to which concrete devices are solved at once.
EXACT_SIZE = 1500


@dataclass(frozen=True)
class _Answer:
    first: Solution
    second: Solution
    offered: Choices


def solve(problem: Problem) -> Allocation:
    """The best allocation found in ``problem.time_limit_s``, without reasons; objective and bound as in
    :func:`scheduler.allocation.proteus.solve`."""
    budget = Budget(problem.time_limit_s)
    concrete = choices(problem, singles(problem.devices))
    if concrete.size == 0:
        return assemble(problem, (), {})
    groups = grouped(problem.devices)
    if concrete.size <= EXACT_SIZE or all(len(group) == 1 for group in groups):
        answer = _two_solves(problem, concrete, budget.left())
        return _allocation(problem, answer, answer.first.bound, answer.second.bound)
    return _packed(problem, choices(problem, groups), budget)


def _two_solves(problem: Problem, offered: Choices, seconds: float, start=None) -> _Answer:
    """The most that can be served, then the best accuracy while serving that. Always has an answer: serving nothing is
    feasible, and the first solution is one of the second problem."""
    budget = Budget(seconds)
    formulation = SharingModel(problem, offered)
    first = maximise(formulation.model, formulation.served, budget.left() * 0.5, problem.gap, start or {})
    if first is None:
        first = Solution({}, 0.0, 1.0, False)
    formulation = SharingModel(problem, offered)
    formulation.serve(first.objective)
    second = maximise(formulation.model, formulation.objective, budget.left(), problem.gap, start=first.values)
    if second is None:
        second = Solution(first.values, 0.0, 100.0, False)
    return _Answer(first, second, offered)


def _allocation(problem: Problem, answer: _Answer, served_bound: float, bound: float) -> Allocation:
    """The answer on devices, with its gap to the given bounds on the served share and on the objective."""
    seats = seats_of(answer.offered, pack(answer.offered, answer.second.values))
    rates: dict[str, float] = {}
    demand = {a.id: a.demand for a in problem.applications}
    for option in (*answer.offered.dedicated, *answer.offered.shared):
        name = dedicated_names(option)[1] if hasattr(option, "capacity") else shared_names(option)[2]
        share = answer.second.values.get(name, 0.0)
        if share > 0:
            m = option.variant
            rates[m.id] = rates.get(m.id, 0.0) + share * demand[m.application]
    served = Solution({}, answer.first.objective, max(served_bound, answer.first.objective), True)
    accuracy = Solution({}, answer.second.objective, max(bound, answer.second.objective), True)
    gap = max(relative_gap(served), relative_gap(accuracy))
    return assemble(
        problem,
        seats,
        rates,
        objective=accuracy.objective,
        bound=accuracy.bound,
        gap=gap,
        proven=gap <= max(problem.gap, SERVED_TOLERANCE),
    )


def _packed(problem: Problem, aggregated: Choices, budget: Budget) -> Allocation:
    counts = _two_solves(problem, aggregated, budget.left() * 0.5)
    bins = pack(aggregated, counts.second.values)
    seats = seats_of(aggregated, bins)
    groups = singles(problem.devices)
    index = {group.one.id: g for g, group in enumerate(groups)}
    application = {v.id: v.application for v in problem.variants}
    # Around the packed plan: each device keeps its turn gap and its applications, with any of their variants.
    around: dict[tuple[int, float], set[str]] = {}
    for seat in seats:
        around.setdefault((index[seat.device.id], seat.turn_gap_s), set()).add(seat.variant.application)
    hosted = {seat.variant.application for seat in seats}
    missing = {a.id for a in problem.applications if a.demand > 0} - hosted
    narrowed = choices(
        problem,
        groups,
        lambda g, gap_s, m: (g, gap_s) in around and (application[m] in around[g, gap_s] or application[m] in missing),
    )
    answer = _two_solves(problem, narrowed, budget.left() * 0.9, _start(narrowed, seats, index, problem))
    served_bound, bound = counts.first.bound, counts.second.bound
    if answer.first.objective < counts.first.objective - SERVED_TOLERANCE:
        # The packed plan serves less than the relaxation: the bound on accuracy must not assume that it serves more.
        formulation = SharingModel(problem, aggregated)
        formulation.serve(answer.first.objective)
        bound = relaxed_bound(formulation.model, formulation.objective, max(budget.left(), 0.5))
        bound = min(bound, 100.0)
    return _allocation(problem, answer, served_bound, bound)


def _start(offered: Choices, seats, index, problem: Problem) -> dict[str, float]:
    """The packed plan as values of the concrete model's variables: rates greedily by accuracy."""
    demand = {a.id: a.demand for a in problem.applications}
    values: dict[str, float] = {}
    options = {}
    for option in offered.dedicated:
        options[option.group, 0.0, option.variant.id] = option
    for option in offered.shared:
        options[option.group, option.gap_s, option.variant.id] = option
    for seat in sorted(seats, key=lambda s: (-s.variant.accuracy, s.device.id, s.variant.id)):
        g, q = index[seat.device.id], seat.variant.application
        option = options[g, seat.turn_gap_s, seat.variant.id]
        rate = min(seat.capacity, demand[q])
        demand[q] -= rate
        share = rate / next(a.demand for a in problem.applications if a.id == q)
        if seat.cost is None:
            x_name, y_name = dedicated_names(option)
            values |= {x_name: 1.0, y_name: share * (1 - 1e-9)}
        else:
            r_name, w_name, y_name = shared_names(option)
            values |= {r_name: 1.0, w_name: float(seat.max_batch), y_name: share * (1 - 1e-9)}
            values[f"n_{g}_{seat.turn_gap_s}"] = 1.0
    return values
