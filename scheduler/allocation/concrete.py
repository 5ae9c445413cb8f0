"""From device counts to an :class:`~.problem.Allocation` on concrete devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .assign import assign
from .device_counts import DeviceCounts
from .disaggregation import disaggregate
from .group_options import SERVED, GroupOptions
from .problem import Allocation, Placement, Problem
from .relaxation import Relaxation, most_points
from .switching_cost import SwitchingCosts

#: Relative tolerance within which all demand counts as served.
EXACT = 1e-6
#: Tolerance for comparing relative gaps.
PRECISION = 1e-6


@dataclass(frozen=True, eq=False)
class ConcretePlan:
    """Placements on concrete devices, and revisit periods of the shared ones.

    Attributes:
        value: of the counts, less switching cost (points/s).
    """

    placements: Mapping[str, tuple[Placement, ...]]
    revisit_s: Mapping[str, float]
    value: float


def on_devices(counts: DeviceCounts, switching: SwitchingCosts) -> ConcretePlan:
    """Assign the counts' residents, to devices that have them loaded if possible."""
    placements: dict[str, tuple[Placement, ...]] = {}
    revisit_s: dict[str, float] = {}
    cost = 0.0
    for g, (group, contents) in enumerate(zip(counts.options.groups, disaggregate(counts), strict=True)):
        wanted = [frozenset([p.variant for p in content.placements]) for content in contents]
        devices = assign(group.devices, wanted, lambda variant, g=g: switching.cost(g, variant))
        for device, content, variants in zip(devices, contents, wanted, strict=True):
            placements[device.id] = tuple([replace(p, device=device.id) for p in content.placements])
            if content.revisit_s:
                revisit_s[device.id] = content.revisit_s
            cost += sum([switching.cost(g, variant) for variant in sorted(variants - device.loaded)])
    return ConcretePlan(placements, revisit_s, counts.value - cost)


def allocation_of(
    problem: Problem, options: GroupOptions, relaxed: Relaxation, concrete: ConcretePlan, gap_target: float
) -> Allocation:
    """Return the allocation.

    Args:
        gap_target: largest relative gap that counts as optimal.
    """
    placements = tuple([p for device in problem.devices for p in concrete.placements.get(device.id, ())])
    weight = {a.id: a.weight for a in problem.applications}
    variants = {v.id: v for v in problem.variants}
    served = {a.id: 0.0 for a in problem.applications}
    items = accurate = points = 0.0
    for placement in placements:
        variant, rate = variants[placement.variant], placement.rate
        served[variant.application] += rate
        items += rate
        accurate += rate * variant.accuracy
        points += weight[variant.application] * rate * variant.accuracy
    left_out = {}
    for application in problem.applications:
        short = application.demand - served[application.id]
        left_out[application.id] = short if short > application.demand * EXACT else 0.0
        served[application.id] = application.demand - left_out[application.id]
    weighted = sum(a.weight * served[a.id] for a in problem.applications)
    bound = relaxed.points
    if weighted < relaxed.served * (1 - EXACT):
        # Serving less leaves time for more accuracy, so the bound must be that for what is served.
        bound = most_points(options, weighted)
    # Serving as much leaves the rest of the combined bound to accuracy; each item served has at least the least one.
    bound = min(bound, max(relaxed.combined - SERVED * weighted, points))
    bound = min(bound, max(relaxed.limited - SERVED * min(weighted, relaxed.counted), points))
    least = min((v.accuracy for a in options.applications for v in options.variants(a.id)), default=0.0)
    most_served = min(relaxed.served, max(relaxed.combined / (SERVED + least), weighted))
    # A plan that no other exceeds in both together leaves nothing to serve, either.
    gap = min(
        max(_gap(weighted, most_served), _gap(points, bound)),
        _gap(points, max(relaxed.combined - SERVED * weighted, points)),
    )
    # Those bounds are of plans that serve as much within floors; divisible devices may serve more.
    in_floors = sum(a.weight * min(served[a.id], a.floor * a.demand) for a in problem.applications)
    if in_floors < relaxed.floors * (1 - EXACT):
        gap = max(gap, _gap(in_floors, relaxed.floors))
    demand = sum(a.weight * a.demand for a in problem.applications)
    loaded = {device.id: device.loaded for device in problem.devices}
    return Allocation(
        placements=placements,
        served=served,
        left_out=left_out,
        accuracy=accurate / items if items > 0 else 0.0,
        revisit_s=concrete.revisit_s,
        objective=points / demand,
        bound=max(bound, points) / demand,
        gap=gap,
        status="empty" if not placements else "optimal" if gap <= gap_target + PRECISION else "feasible",
        moves=sum([p.variant not in loaded[p.device] for p in placements]),
        prices=_by_type(problem, options, relaxed),
    )


def nothing_planned(problem: Problem) -> Allocation:
    return Allocation(
        placements=(),
        served={a.id: 0.0 for a in problem.applications},
        left_out={a.id: a.demand for a in problem.applications},
        accuracy=0.0,
        status="empty",
        prices={device.type: 0.0 for device in problem.devices},
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
