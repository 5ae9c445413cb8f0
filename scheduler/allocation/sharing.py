"""Device sharing: an allocation in which a device may hold several variants that take turns.

For when dedicating devices cannot serve everything: more applications than devices, or demand that rounding to whole
devices strands. See :mod:`.time_slices` for the rules, :mod:`.sharing_model` for the MILP.

All solves start from the better of a plan without sharing and one built by hand (:mod:`.greedy_start`). Small problems
are solved over concrete devices, which is exact. Larger ones are solved over groups of identical devices first; the
counts are packed, and the rest of the time goes into a MILP over concrete devices that starts from the best plan so far
and may exchange variants where they are. The certified gap compares the plan, as packed, with a bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .greedy_start import construct
from .groups import grouped, singles
from .packing import pack, seats_of
from .problem import Allocation, Problem
from .proteus import SERVED_TOLERANCE, Option, relative_gap
from .residents import Seat, assemble
from .sharing_model import Choices, SharingModel, choices, dedicated_names, load_price, shared_names
from .solver import Budget, Solution, maximise, relaxed_bound, time_ran_out

#: Options (device, turn gap, variant) up to which concrete devices are solved at once.
EXACT_SIZE = 1500
#: Share of the time that building a first plan by hand may take.
CONSTRUCT_SHARE = 0.1
#: Share of the time that must be left for the last MILP, over concrete devices, to be begun.
LEAST_POLISH_SHARE = 0.15


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
    loaded = {device.id: device.loaded for device in problem.devices}
    alone = singles(problem.devices)
    # What is loaded may be as good as anything: starting from it keeps plans from flapping where time runs out.
    kept = choices(problem, alone, lambda g, _gap_s, variant: variant in loaded[alone[g].one.id])
    plans = [
        construct(problem, kept, Budget(budget.left() * CONSTRUCT_SHARE)),
        construct(problem, aggregated, Budget(budget.left() * CONSTRUCT_SHARE)),
        list(dedicated),
    ]
    seats = max(plans, key=lambda plan: _worth(problem, plan))
    sizes = [len(group) for group in aggregated.groups]
    if sum(sizes[o.group] for o in (*aggregated.dedicated, *aggregated.shared)) <= EXACT_SIZE or max(sizes) == 1:
        concrete = choices(problem, alone)
        answer = _two_solves(problem, concrete, budget.left(), seats)
        return _allocation(problem, answer, answer.first.bound, answer.second.bound)
    return _packed(problem, aggregated, seats, budget)


def _worth(problem: Problem, seats: Iterable[Seat]) -> tuple[float, float]:
    """The share of the weighted demand that the seats can serve, and their objective (percent, less prices)."""
    left = {a.id: a.demand for a in problem.applications}
    weight = {a.id: a.weight for a in problem.applications}
    total = sum(a.weight * a.demand for a in problem.applications)
    served = accuracy = loads = 0.0
    for seat in sorted(seats, key=lambda s: -s.variant.accuracy):
        rate = min(seat.capacity, left[seat.variant.application])
        left[seat.variant.application] -= rate
        worth = weight[seat.variant.application] * rate / total
        served += worth
        accuracy += worth * seat.variant.accuracy
        loads += seat.variant.id not in seat.device.loaded
    active = sum(a.demand > 0 for a in problem.applications)
    return round(served, 6), accuracy - load_price(len(problem.devices), active) * loads


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
    served_bound, bound = min(served_bound, 1.0), min(bound, top_accuracy(problem))
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
    seats = max((packed, seats), key=lambda plan: _worth(problem, plan))
    if budget.left() <= problem.time_limit_s * LEAST_POLISH_SHARE:
        time_ran_out()
        return _as_seated(problem, seats, counts)
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


def _as_seated(problem: Problem, seats: list[Seat], counts: _Answer) -> Allocation:
    """The seats as they are, each application's most accurate ones filled first, with the gap to the counts' bounds."""
    left = {a.id: a.demand for a in problem.applications}
    rates: dict[str, float] = {}
    for seat in sorted(seats, key=lambda s: -s.variant.accuracy):
        rate = min(seat.capacity, left[seat.variant.application])
        left[seat.variant.application] -= rate
        rates[seat.variant.id] = rates.get(seat.variant.id, 0.0) + rate
    served, objective = _worth(problem, seats)
    # The counts' bound on accuracy holds for plans that serve as much as the counts do; otherwise only the plain one.
    comparable = served >= counts.first.objective - SERVED_TOLERANCE
    bound = min(counts.second.bound, top_accuracy(problem)) if comparable else top_accuracy(problem)
    gaps = [
        relative_gap(Solution({}, served, max(min(counts.first.bound, 1.0), served), True)),
        relative_gap(Solution({}, objective, max(bound, objective), True)),
    ]
    return assemble(
        problem,
        seats,
        rates,
        objective=objective,
        bound=max(bound, objective),
        gap=max(gaps),
        proven=max(gaps) <= max(problem.gap, SERVED_TOLERANCE),
    )


def top_accuracy(problem: Problem) -> float:
    """Nothing can be better than the most accurate variant."""
    return max(v.accuracy for v in problem.variants)
