"""InfAdapter and Model-Switching+: variants, cores and quotas by Eq. 1.

Batches have one row: the paper finds that CPUs gain little by more (Section 5). The capacity of a variant is the line
through few measurements where instances of several devices were measured, else what its devices serve one by one.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.allocation.problem import Allocation, Problem

from ..dedicated import allocation_with, best_first, one_by_one
from .placing import CoreOptions
from .weighing import weigh

_FEWER_CORES = "The budget of cores, or the devices, serve no more: raise the budget, or add devices."


def infadapter(problem: Problem) -> Allocation:
    why = "Each variant gets as many devices as accuracy, cores and loads make worth while, and queries by its quota."
    return _solved(problem, False, why)


def model_switching(problem: Problem) -> Allocation:
    why = "Each application has one variant, on as many devices as accuracy, cores and loads make worth while."
    return _solved(problem, True, why)


def _solved(problem: Problem, single: bool, why: str) -> Allocation:
    problem = replace(problem, variants=tuple(one_by_one(v) for v in problem.variants if not v.excluded))
    cores = CoreOptions(problem)
    weighed = weigh(problem, cores.options, single)
    if weighed is None:
        return allocation_with(problem, {}, {}, why, _FEWER_CORES)
    counts, solution = weighed
    residents = cores.place(counts)
    # Quotas fill the most accurate variants first.
    plan = allocation_with(problem, residents, best_first(problem, residents), why, _FEWER_CORES)
    if not residents:
        return plan
    distance = max(0.0, solution.bound - solution.objective)
    return replace(
        plan,
        objective=solution.objective,
        bound=solution.bound,
        gap=distance / abs(solution.objective) if solution.objective else 0.0,
        status="optimal" if solution.proven else "feasible",
    )
