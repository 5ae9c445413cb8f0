"""From device counts to an :class:`~.problem.Allocation` on concrete devices."""

from __future__ import annotations

from dataclasses import replace

from .assign import assign
from .device_counts import DeviceCounts
from .disaggregation import disaggregate
from .group_options import GroupOptions
from .outcome import outcome
from .problem import Allocation, Placement, Problem
from .relaxation import Relaxation, most_points
from .switching_cost import SwitchingCosts

#: Relative tolerance within which all demand counts as served.
EXACT = 1e-6
#: Tolerance for comparing relative gaps.
PRECISION = 1e-6


def on_devices(problem: Problem, counts: DeviceCounts, switching: SwitchingCosts) -> tuple[float, Allocation]:
    """Return the value of the counts, minus switching cost (points/s), and their allocation, without bounds."""
    placements: dict[str, list[Placement]] = {}
    revisit_s: dict[str, float] = {}
    cost = 0.0
    for g, (group, contents) in enumerate(zip(counts.options.groups, disaggregate(counts), strict=True)):
        wanted = [frozenset([p.variant for p in content.placements]) for content in contents]
        devices = assign(group.devices, wanted, lambda variant, g=g: switching.cost(g, variant))
        for device, content, variants in zip(devices, contents, wanted, strict=True):
            placements[device.id] = [replace(p, device=device.id) for p in content.placements]
            if content.revisit_s:
                revisit_s[device.id] = content.revisit_s
            cost += sum([switching.cost(g, variant) for variant in sorted(variants - device.loaded)])
    made = outcome(problem, [p for device in problem.devices for p in placements.get(device.id, ())])
    return counts.value - cost, replace(made, revisit_s=revisit_s)


def certified(
    problem: Problem, options: GroupOptions, relaxed: Relaxation, made: Allocation, gap_target: float
) -> Allocation:
    """With bound, gap and prices; up to a gap of ``gap_target`` it is optimal."""
    demand = sum(a.weight * a.demand for a in problem.applications)
    served, points = made.served, made.objective * demand
    weighted = sum(a.weight * served[a.id] for a in problem.applications)
    bound = relaxed.points
    if weighted < relaxed.served * (1 - EXACT):
        # Serving less leaves time for more accuracy, so the bound must be that for what is served.
        bound = most_points(options, weighted)
    # Serving as much leaves the rest of the combined bound to accuracy; each item served has at least the least one.
    bound = min(bound, max(relaxed.combined - relaxed.worth * weighted, points))
    bound = min(bound, max(relaxed.limited - relaxed.worth * min(weighted, relaxed.counted), points))
    least = min((v.accuracy for a in options.applications for v in options.variants(a.id)), default=0.0)
    most_served = min(relaxed.served, max(relaxed.combined / (relaxed.worth + least), weighted))
    # A plan that no other exceeds in both together leaves nothing to serve, either.
    gap = min(
        max(_gap(weighted, most_served), _gap(points, bound)),
        _gap(points, max(relaxed.combined - relaxed.worth * weighted, points)),
    )
    # Those bounds are of plans that serve as much within floors; divisible devices may serve more.
    in_floors = sum(a.weight * min(served[a.id], a.floor * a.demand) for a in problem.applications)
    if in_floors < relaxed.floors * (1 - EXACT):
        gap = max(gap, _gap(in_floors, relaxed.floors))
    return replace(
        made,
        bound=max(bound, points) / demand,
        gap=gap,
        status="empty" if not made.placements else "optimal" if gap <= gap_target + PRECISION else "feasible",
        prices=_by_type(problem, options, relaxed),
    )


def _gap(value: float, bound: float) -> float:
    if bound <= 0:
        return 0.0
    if value <= 0:
        return 1.0
    gap = (bound - value) / value
    return gap if gap > 1e-9 else 0.0


def _by_type(problem: Problem, options: GroupOptions, relaxed: Relaxation) -> dict[str, float]:
    """Prices by device type: of several groups of a type, the mean over their devices."""
    total = {device.type: 0.0 for device in problem.devices}
    count: dict[str, int] = {}
    for group, price in zip(options.groups, relaxed.prices, strict=True):
        total[group.one.type] += float(price) * len(group)
        count[group.one.type] = count.get(group.one.type, 0) + len(group)
    return {kind: value / count.get(kind, 1) for kind, value in total.items()}
