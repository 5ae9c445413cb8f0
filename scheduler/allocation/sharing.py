"""Device sharing: an allocation in which a device may hold several variants that take turns.

For when dedicating devices cannot serve everything: more applications than devices, or demand that rounding to whole
devices strands. See :mod:`.turns` for the rules, :mod:`.sharing_model` for the MILP.

All solves start from the better of a plan without sharing and one built by hand (:mod:`.construct`). Small problems
are solved over concrete devices, which is exact. Larger ones are solved over groups of identical devices first; the
counts are packed, and the rest of the time goes into a MILP over concrete devices that starts from the best plan so far
and may exchange variants where they are. The certified gap compares the plan, as packed, with a bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .construct import construct
from .groups import grouped, singles
from .packing import pack, seats_of
from .problem import Allocation, Problem
from .proteus import SERVED_TOLERANCE, Option, relative_gap
from .seats import Seat, assemble
from .sharing_model import Choices, SharingModel, choices, dedicated_names, shared_names
from .solver import Budget, Solution, maximise, relaxed_bound

#: Options (device, turn gap, variant) up to which concrete devices are solved at once.
EXACT_SIZE = 1500
#: Share of the time that building a first plan by hand may take.
CONSTRUCT_SHARE = 0.1


@dataclass(frozen=True)
class _Answer:
    first: Solution
    second: Solution
    offered: Choices


def solve(problem: Problem, dedicated: Iterable[Seat] = ()) -> Allocation:
    """The best allocation found in ``problem.time_limit_s``, without reasons; objective and bound as in
    :func:`scheduler.allocation.proteus.solve`. ``dedicated``: the seats of a plan without sharing, to start from."""
    budget = Budget(problem.time_limit_s)
    aggregated = choices(problem, grouped(problem.devices))
    if aggregated.size == 0:
        return assemble(problem, (), {})
    seats = construct(problem, aggregated, Budget(budget.left() * CONSTRUCT_SHARE))
    seats = max((seats, list(dedicated)), key=lambda plan: _served(problem, plan))
    sizes = [len(group) for group in aggregated.groups]
    if sum(sizes[o.group] for o in (*aggregated.dedicated, *aggregated.shared)) <= EXACT_SIZE or max(sizes) == 1:
        concrete = choices(problem, singles(problem.devices))
        answer = _two_solves(problem, concrete, budget.left(), seats)
        return _allocation(problem, answer, answer.first.bound, answer.second.bound)
    return _packed(problem, aggregated, seats, budget)


def _served(problem: Problem, seats: Iterable[Seat]) -> float:
    """Weighted items/s that the seats can serve."""
    capacity: dict[str, float] = {}
    for seat in seats:
        capacity[seat.variant.application] = capacity.get(seat.variant.application, 0.0) + seat.capacity
    return sum(a.weight * min(a.demand, capacity.get(a.id, 0.0)) for a in problem.applications)


def _two_solves(problem: Problem, offered: Choices, seconds: float, seats: Iterable[Seat]) -> _Answer:
    """The most that can be served, then the best accuracy while serving that; never worse than ``seats``."""
    budget = Budget(seconds)
    start = _values(problem, offered, seats)
    formulation = SharingModel(problem, offered)
    first = maximise(formulation.model, formulation.served, budget.left() * 0.4, problem.gap, start)
    if first is None:
        first = Solution({}, 0.0, 1.0, False)
    formulation = SharingModel(problem, offered)
    formulation.serve(first.objective)
    second = maximise(formulation.model, formulation.objective, budget.left(), problem.gap, first.values)
    if second is None:
        second = Solution(first.values, 0.0, 100.0, False)
    return _Answer(first, second, offered)


def _options(offered: Choices) -> dict[tuple[int, float, str], Option | object]:
    found = {(o.group, 0.0, o.variant.id): o for o in offered.dedicated}
    return found | {(o.group, o.gap_s, o.variant.id): o for o in offered.shared}


def _values(problem: Problem, offered: Choices, seats: Iterable[Seat]) -> dict[str, float]:
    """The seats as values of the model's variables; the most accurate of an application's seats are filled first."""
    demand = {a.id: a.demand for a in problem.applications}
    left = dict(demand)
    index = {device.id: g for g, group in enumerate(offered.groups) for device in group.devices}
    options = _options(offered)
    values: dict[str, float] = {}
    shared: set[str] = set()

    def add(name: str, amount: float) -> None:
        values[name] = values.get(name, 0.0) + amount

    for seat in sorted(seats, key=lambda s: (-s.variant.accuracy, s.device.id, s.variant.id)):
        g, q = index[seat.device.id], seat.variant.application
        option = options.get((g, seat.turn_gap_s, seat.variant.id))
        if option is None:
            continue
        rate = min(seat.capacity, left[q])
        left[q] -= rate
        if seat.cost is None:
            x_name, y_name = dedicated_names(option)
            add(x_name, 1.0)
        else:
            r_name, w_name, y_name = shared_names(option)
            add(r_name, 1.0)
            add(w_name, float(seat.max_batch))
            if seat.device.id not in shared:
                shared.add(seat.device.id)
                add(f"n_{g}_{seat.turn_gap_s}", 1.0)
        add(y_name, rate / demand[q])
    return values


def _allocation(problem: Problem, answer: _Answer, served_bound: float, bound: float) -> Allocation:
    """The answer on devices, with its gap to the given bounds on the served share and on the objective."""
    seats = seats_of(answer.offered, pack(answer.offered, answer.second.values))
    rates: dict[str, float] = {}
    demand = {a.id: a.demand for a in problem.applications}
    names = [(o, dedicated_names(o)[-1]) for o in answer.offered.dedicated]
    names += [(o, shared_names(o)[-1]) for o in answer.offered.shared]
    for option, name in names:
        rate = answer.second.values.get(name, 0.0) * demand[option.variant.application]
        if rate > 0:
            rates[option.variant.id] = rates.get(option.variant.id, 0.0) + rate
    # More than all of the demand cannot be served, nor better than by the most accurate variant.
    served_bound, bound = min(served_bound, 1.0), min(bound, max(v.accuracy for v in problem.variants))
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


def _packed(problem: Problem, aggregated: Choices, seats: list[Seat], budget: Budget) -> Allocation:
    counts = _two_solves(problem, aggregated, budget.left() * 0.5, seats)
    packed = seats_of(aggregated, pack(aggregated, counts.second.values))
    if _served(problem, packed) >= _served(problem, seats) * (1 - SERVED_TOLERANCE):
        seats = packed
    groups = singles(problem.devices)
    index = {group.one.id: g for g, group in enumerate(groups)}
    application = {v.id: v.application for v in problem.variants}
    # Around the plan: each device keeps its turn gap and its applications, with any of their variants, and whatever
    # is left out may join.
    around: dict[tuple[int, float], set[str]] = {}
    for seat in seats:
        around.setdefault((index[seat.device.id], seat.turn_gap_s), set()).add(seat.variant.application)
    hosted = {seat.variant.application for seat in seats}
    missing = {a.id for a in problem.applications if a.demand > 0} - hosted

    def keep(g: int, gap_s: float, variant: str) -> bool:
        return (g, gap_s) in around and (application[variant] in around[g, gap_s] or application[variant] in missing)

    answer = _two_solves(problem, choices(problem, groups, keep), budget.left() * 0.9, seats)
    bound = counts.second.bound
    if answer.first.objective < counts.first.objective - SERVED_TOLERANCE:
        # The packed plan serves less than the relaxation: the bound on accuracy must not assume that it serves more.
        formulation = SharingModel(problem, aggregated)
        formulation.serve(answer.first.objective)
        bound = relaxed_bound(formulation.model, formulation.objective, budget.left())
    return _allocation(problem, answer, counts.first.bound, bound)
