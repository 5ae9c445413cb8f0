"""Device sharing by SCIP: devices may hold several variants in time slices.

For problems that dedicated devices cannot serve: more applications than devices, or demand lost to rounding to whole
devices. See :mod:`.time_slices` for the rules, :mod:`.sharing_model` for the MILP.

All solves start from the better of a plan without sharing and a greedy start (:mod:`.greedy_start`). Small problems are
solved over concrete devices, which is exact. Larger ones are solved over groups of identical devices first; the counts
are packed, and the remaining time goes into a MILP over concrete devices that starts from the best plan so far and may
exchange variants in place. The certified gap compares the plan, as packed, with a bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .greedy_start import greedy_start
from .groups import grouped, singles
from .packing import pack, residents_of
from .problem import Allocation, Problem
from .proteus import SERVED_TOLERANCE, DedicatedOption, relative_gap
from .residents import ResidentCapacity, assemble
from .sharing_model import Choices, SharingModel, choices, dedicated_names, load_price, shared_names
from .solver import Budget, Solution, maximise, relaxed_bound, time_ran_out

#: Number of options (device, revisit period, variant) up to which concrete devices are solved at once.
EXACT_SIZE = 1500
#: Share of the time limit for each greedy start.
GREEDY_SHARE = 0.1
#: Share of the time limit that must remain to begin the last MILP, over concrete devices.
LEAST_POLISH_SHARE = 0.15


@dataclass(frozen=True)
class _Answer:
    first: Solution
    second: Solution
    offered: Choices


def solve(problem: Problem, dedicated: Iterable[ResidentCapacity] = ()) -> Allocation:
    """Return the best allocation found in the time limit, without reasons.

    Objective and bound are as in :func:`scheduler.allocation.proteus.solve`.

    Args:
        dedicated: the residents of a plan without sharing, to start from.
    """
    budget = Budget(problem.time_limit_s)
    aggregated = choices(problem, grouped(problem.devices))
    if aggregated.size == 0:
        return assemble(problem, (), {})
    loaded = {device.id: device.loaded for device in problem.devices}
    alone = singles(problem.devices)
    # Starting from what is loaded keeps plans from flapping where time runs out.
    kept = choices(problem, alone, lambda g, _revisit_s, variant: variant in loaded[alone[g].one.id])
    plans = [
        greedy_start(problem, kept, Budget(budget.left() * GREEDY_SHARE)),
        greedy_start(problem, aggregated, Budget(budget.left() * GREEDY_SHARE)),
        list(dedicated),
    ]
    residents = max(plans, key=lambda plan: _utility(problem, plan))
    sizes = [len(group) for group in aggregated.groups]
    if sum(sizes[o.group] for o in (*aggregated.dedicated, *aggregated.shared)) <= EXACT_SIZE or max(sizes) == 1:
        concrete = choices(problem, alone)
        answer = _two_solves(problem, concrete, budget.left(), residents)
        return _allocation(problem, answer, answer.first.bound, answer.second.bound)
    return _packed(problem, aggregated, residents, budget)


def _utility(problem: Problem, residents: Iterable[ResidentCapacity]) -> tuple[float, float]:
    """Return what residents can serve, and how well.

    Returns:
        The share of the weighted demand, and the objective (percent, less the price of loads).
    """
    left = {a.id: a.demand for a in problem.applications}
    weight = {a.id: a.weight for a in problem.applications}
    total = sum(a.weight * a.demand for a in problem.applications)
    served = accuracy = loads = 0.0
    for resident in sorted(residents, key=lambda s: -s.variant.accuracy):
        rate = min(resident.capacity, left[resident.variant.application])
        left[resident.variant.application] -= rate
        worth = weight[resident.variant.application] * rate / total
        served += worth
        accuracy += worth * resident.variant.accuracy
        loads += resident.variant.id not in resident.device.loaded
    active = sum(a.demand > 0 for a in problem.applications)
    return round(served, 6), accuracy - load_price(len(problem.devices), active) * loads


def _two_solves(problem: Problem, offered: Choices, seconds: float, residents: Iterable[ResidentCapacity]) -> _Answer:
    """Solve for the most that can be served, then for the best accuracy at that.

    The solves start from ``residents``, so that the answer is never worse where SCIP accepts these.
    """
    budget = Budget(seconds)
    start = _values(problem, offered, residents)
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


def _options(offered: Choices) -> dict[tuple[int, float, str], DedicatedOption | object]:
    found = {(o.group, 0.0, o.variant.id): o for o in offered.dedicated}
    return found | {(o.group, o.revisit_s, o.variant.id): o for o in offered.shared}


def _values(problem: Problem, offered: Choices, residents: Iterable[ResidentCapacity]) -> dict[str, float]:
    """Return the residents as values of the model's variables.

    An application's most accurate ones are filled first. Those without an option in ``offered`` are left out.
    """
    demand = {a.id: a.demand for a in problem.applications}
    left = dict(demand)
    index = {device.id: g for g, group in enumerate(offered.groups) for device in group.devices}
    options = _options(offered)
    values: dict[str, float] = {}
    shared: set[str] = set()

    def add(name: str, amount: float) -> None:
        values[name] = values.get(name, 0.0) + amount

    for resident in sorted(residents, key=lambda s: (-s.variant.accuracy, s.device.id, s.variant.id)):
        g, q = index[resident.device.id], resident.variant.application
        option = options.get((g, resident.revisit_s, resident.variant.id))
        if option is None:
            continue
        rate = min(resident.capacity, left[q])
        left[q] -= rate
        if resident.cost is None:
            x_name, y_name = dedicated_names(option)
            add(x_name, 1.0)
        else:
            r_name, w_name, y_name = shared_names(option)
            add(r_name, 1.0)
            add(w_name, float(resident.max_batch))
            if resident.device.id not in shared:
                shared.add(resident.device.id)
                add(f"n_{g}_{resident.revisit_s}", 1.0)
        add(y_name, rate / demand[q])
    return values


def _allocation(problem: Problem, answer: _Answer, served_bound: float, bound: float) -> Allocation:
    """Return the answer on devices, with its gap to the given bounds.

    Args:
        served_bound: on the share of the weighted demand served.
        bound: on the objective.
    """
    residents = residents_of(answer.offered, pack(answer.offered, answer.second.values))
    rates: dict[str, float] = {}
    demand = {a.id: a.demand for a in problem.applications}
    names = [(o, dedicated_names(o)[-1]) for o in answer.offered.dedicated]
    names += [(o, shared_names(o)[-1]) for o in answer.offered.shared]
    for option, name in names:
        rate = answer.second.values.get(name, 0.0) * demand[option.variant.application]
        if rate > 0:
            rates[option.variant.id] = rates.get(option.variant.id, 0.0) + rate
    # Bounds cannot exceed all demand, nor the most accurate variant.
    served_bound, bound = min(served_bound, 1.0), min(bound, top_accuracy(problem))
    served = Solution({}, answer.first.objective, max(served_bound, answer.first.objective), True)
    accuracy = Solution({}, answer.second.objective, max(bound, answer.second.objective), True)
    gap = max(relative_gap(served), relative_gap(accuracy))
    return assemble(
        problem,
        residents,
        rates,
        objective=accuracy.objective,
        bound=accuracy.bound,
        gap=gap,
        proven=gap <= max(problem.gap, SERVED_TOLERANCE),
    )


def _packed(problem: Problem, aggregated: Choices, residents: list[ResidentCapacity], budget: Budget) -> Allocation:
    counts = _two_solves(problem, aggregated, budget.left() * 0.5, residents)
    packed = residents_of(aggregated, pack(aggregated, counts.second.values))
    residents = max((packed, residents), key=lambda plan: _utility(problem, plan))
    if budget.left() <= problem.time_limit_s * LEAST_POLISH_SHARE:
        time_ran_out()
        return _as_placed(problem, residents, counts)
    groups = singles(problem.devices)
    index = {group.one.id: g for g, group in enumerate(groups)}
    application = {v.id: v.application for v in problem.variants}
    # Neighbourhood of the plan: each device keeps its revisit period and its applications, with any of their variants;
    # applications that are left out may join.
    around: dict[tuple[int, float], set[str]] = {}
    for resident in residents:
        around.setdefault((index[resident.device.id], resident.revisit_s), set()).add(resident.variant.application)
    hosted = {resident.variant.application for resident in residents}
    missing = {a.id for a in problem.applications if a.demand > 0} - hosted

    def keep(g: int, revisit_s: float, variant: str) -> bool:
        return (g, revisit_s) in around and (
            application[variant] in around[g, revisit_s] or application[variant] in missing
        )

    answer = _two_solves(problem, choices(problem, groups, keep), budget.left() * 0.9, residents)
    bound = counts.second.bound
    if answer.first.objective < counts.first.objective - SERVED_TOLERANCE:
        # The packed plan serves less than the relaxation: the bound on accuracy must not assume that it serves more.
        formulation = SharingModel(problem, aggregated)
        formulation.serve(answer.first.objective)
        bound = relaxed_bound(formulation.model, formulation.objective, budget.left())
    return _allocation(problem, answer, counts.first.bound, bound)


def _as_placed(problem: Problem, residents: list[ResidentCapacity], counts: _Answer) -> Allocation:
    """Return the allocation of residents as they are placed.

    Each application's most accurate residents are filled first. The gap is that to the counts' bounds.
    """
    left = {a.id: a.demand for a in problem.applications}
    rates: dict[str, float] = {}
    for resident in sorted(residents, key=lambda s: -s.variant.accuracy):
        rate = min(resident.capacity, left[resident.variant.application])
        left[resident.variant.application] -= rate
        rates[resident.variant.id] = rates.get(resident.variant.id, 0.0) + rate
    served, objective = _utility(problem, residents)
    # The counts' bound on accuracy holds only for plans that serve as much as the counts do.
    comparable = served >= counts.first.objective - SERVED_TOLERANCE
    bound = min(counts.second.bound, top_accuracy(problem)) if comparable else top_accuracy(problem)
    gaps = [
        relative_gap(Solution({}, served, max(min(counts.first.bound, 1.0), served), True)),
        relative_gap(Solution({}, objective, max(bound, objective), True)),
    ]
    return assemble(
        problem,
        residents,
        rates,
        objective=objective,
        bound=max(bound, objective),
        gap=max(gaps),
        proven=max(gaps) <= max(problem.gap, SERVED_TOLERANCE),
    )


def top_accuracy(problem: Problem) -> float:
    """Upper bound on accuracy: the most accurate variant's."""
    return max(v.accuracy for v in problem.variants)
