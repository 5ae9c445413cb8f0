"""What placements serve, leave out and load."""

from __future__ import annotations

from collections.abc import Sequence

from .problem import Allocation, Placement, Problem

#: Relative tolerance on rates: the solver's own feasibility tolerance.
TOLERANCE = 1e-6


def outcome(problem: Problem, placements: Sequence[Placement]) -> Allocation:
    """The allocation of these placements, without bounds; the objective is their weighted accuracy."""
    applications = {a.id: a for a in problem.applications}
    variants = {v.id: v for v in problem.variants}
    loaded = {device.id: device.loaded for device in problem.devices}
    rates = dict.fromkeys(applications, 0.0)
    items = accurate = points = 0.0
    for placement in placements:
        variant, rate = variants[placement.variant], placement.rate
        rates[variant.application] += rate
        items += rate
        accurate += rate * variant.accuracy
        points += applications[variant.application].weight * rate * variant.accuracy
    left_out = {
        name: short if (short := a.demand - rates[name]) > a.demand * 2 * TOLERANCE else 0.0
        for name, a in applications.items()
    }
    demand = sum(a.weight * a.demand for a in problem.applications)
    objective = points / demand if demand > 0 else 0.0
    return Allocation(
        placements=tuple(placements),
        served={name: a.demand - left_out[name] for name, a in applications.items()},
        left_out=left_out,
        accuracy=accurate / items if items > 0 else 0.0,
        objective=objective,
        bound=objective,
        status="optimal" if placements else "empty",
        moves=sum([p.variant not in loaded[p.device] for p in placements]),
    )
