"""INFaaS' integer linear program: the cheapest actions that serve the demand.

Source: Section 4.2.1, Eq. 1 to 4.

For each device group and variant, delta more (or fewer) instances than run:

    minimise    sum of C * (delta + lambda * T_load * max(delta, 0))
    (1)         sum of Q * (N + delta) >= load + slack, of each application; slack is 5% of its load
    (2)         latency <= SLO where delta > 0: within half of it, as with all baselines
    (3)         N + delta in all are no more than the devices of the group
    (4)         N + delta >= 0

Of equally cheap actions, those with the more accurate variants: the paper leaves these open. Where (1) cannot hold, as
few weighted items as possible are left out; the paper adds machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyscipopt import quicksum

from scheduler.allocation.problem import Allocation, Problem
from scheduler.allocation.solver import Budget, maximise, names, new_model

from ..dedicated import DedicatedChoices, counted, placed
from .cost import InstanceOptions, Option, adding, asked, scaled

#: relative gap of the solves
GAP = 1e-4
#: weight of accuracies beside costs: only where these are equal
TIE = 1e-4
#: tolerance on what is left out at least, as a share of the demand
ROUNDING = 1e-6


def infaas_ilp(problem: Problem) -> Allocation:
    choices = DedicatedChoices(problem)
    instances = InstanceOptions(problem, choices)
    counts = _solve(problem, instances) if instances.options else {}
    return scaled(
        problem,
        choices,
        placed(choices, instances.groups, counts),
        "The cheapest instances that serve the demand with a headroom of 5% (INFaaS' ILP).",
    )


def _solve(problem: Problem, instances: InstanceOptions) -> dict[Option, int]:
    budget, gap = Budget(problem.time_limit_s), max(problem.gap, GAP)
    solution = _cheapest(
        problem, instances, dict.fromkeys((a.id for a in problem.applications), 0.0), budget.left() / 3, gap
    )
    if solution is None:
        left = _left_out(problem, instances, budget.left() / 2, gap)
        solution = _cheapest(problem, instances, left, budget.left(), gap)
    return solution or {}


def _model(instances: InstanceOptions):
    model = new_model()
    n = counted(model, instances.groups, instances.options)
    return model, n


def _capacity(instances: InstanceOptions, n, application: str):
    return quicksum(instance.capacity * n[key] for key, instance in instances.of(application).items())


def _cheapest(
    problem: Problem, instances: InstanceOptions, left_out: Mapping[str, float], seconds: float, gap: float
) -> dict[Option, int] | None:
    """The cheapest counts; None: there are none, or none was found in time.

    Args:
        left_out: items/s of each application's asked capacity that may be left out.
    """
    model, n = _model(instances)
    running = Counter(
        (instances.group_of[device], instance.variant.id) for device, instance in instances.running.items()
    )
    devices = sum(len(group) for group in instances.groups)
    cheapest = min(instance.device.cost for instance in instances.options.values())
    costs = []
    for i, (key, instance) in enumerate(instances.options.items()):
        loads = model.addVar(names(("loads", key[0], i)), lb=0)
        model.addCons(loads >= n[key] - running[key])
        costs.append(instance.device.cost * n[key] + (adding(instance) - instance.device.cost) * loads)
        costs.append(TIE * cheapest / devices * (1.0 - instance.variant.accuracy / 100.0) * n[key])
    for application in problem.applications:
        needed = asked(application.demand) - left_out[application.id]
        if needed > asked(application.demand) * ROUNDING:
            if not instances.of(application.id):
                return None
            model.addCons(_capacity(instances, n, application.id) >= needed * (1.0 - ROUNDING))
    solution = maximise(model, -quicksum(costs), seconds, gap)
    if solution is None:
        return None
    return {key: round(solution.values[variable.name]) for key, variable in n.items()}


def _left_out(problem: Problem, instances: InstanceOptions, seconds: float, gap: float) -> dict[str, float]:
    model, n = _model(instances)
    total = sum(a.weight * asked(a.demand) for a in problem.applications)
    shares, parts = {}, []
    for i, application in enumerate(problem.applications):
        needed = asked(application.demand)
        if needed <= 0 or not instances.of(application.id):
            continue
        shares[application.id] = share = model.addVar(names(("served", i)), lb=0, ub=1)
        model.addCons(needed * share <= _capacity(instances, n, application.id))
        parts.append(application.weight * needed / total * share)
    left = {application.id: asked(application.demand) for application in problem.applications}
    solution = maximise(model, quicksum(parts), seconds, gap) if parts else None
    if solution is not None:
        left |= {name: left[name] * (1.0 - solution.values[share.name]) for name, share in shares.items()}
    return left
