"""VPA+: Kubernetes' Vertical Pod Autoscaler, as InfAdapter compares with it.

Sources: InfAdapter, Section 5; the recommender of Kubernetes' autoscaler, whose target is the observed use of CPUs with
a margin. Use is what the demand takes of the variant's cores, and never more than it has: an instance that is throttled
shows no more, so that it grows by the margin at most from one plan to the next. As in the paper the lower bound of
recommendations is not applied, and a new instance is there before the old one goes. The recommender's histogram over
days is not kept: the demand that plans are made for is a high quantile already.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.allocation.problem import Allocation, CandidateVariant, CostWeights, Problem

from ..dedicated import DedicatedChoices, allocation_with, capacity_by_application, evenly, one_by_one
from .placing import CoreOptions
from .weighing import weigh

#: recommended over observed use
MARGIN = 1.15


def vertical(problem: Problem, rank: int | None) -> Allocation:
    """The fewest cores that the recommendation asks for.

    Args:
        rank: place of the variant by accuracy, from the least accurate one, of those that some device can run within
            half of the SLO; None: the middle one.
    """
    problem = replace(problem, variants=_of_rank(problem, rank))
    asked = replace(
        problem,
        applications=tuple(replace(a, demand=demand) for a, demand in _recommended(problem)),
        costs=CostWeights(accuracy=0.0, core=1.0, load_s=0.0, budget=problem.costs.budget),
    )
    cores = CoreOptions(asked)
    weighed = weigh(asked, cores.options)
    residents = {} if weighed is None else cores.place(weighed[0])
    return allocation_with(
        problem,
        residents,
        evenly(problem, residents),
        "Each application has one variant, on as many devices as its use of them asks for.",
        "An instance grows by its use, a part at each plan: wait, choose another stack, or add devices.",
    )


def _recommended(problem: Problem):
    previous = () if problem.previous is None else problem.previous.placements
    before = capacity_by_application(DedicatedChoices(problem).residents(previous))
    for application in problem.applications:
        yield application, MARGIN * min(application.demand, before.get(application.id, application.demand))


def _of_rank(problem: Problem, rank: int | None) -> tuple[CandidateVariant, ...]:
    choices = DedicatedChoices(problem)
    able = [
        one_by_one(variant)
        for variant in problem.variants
        if not variant.excluded and any(choices.resident(device, variant) for device in problem.devices)
    ]
    kept = []
    for application in problem.applications:
        ranked = sorted((v for v in able if v.application == application.id), key=lambda v: v.accuracy)
        if ranked:
            chosen = ranked[(len(ranked) - 1) // 2 if rank is None else rank]
            # Use is measured on each core: no instance is measured beforehand.
            kept.append(replace(chosen, capacities={}))
    return tuple(kept)
