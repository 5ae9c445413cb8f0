"""Counts seated on concrete devices, and written down as an :class:`~.problem.Allocation`."""

from __future__ import annotations

from dataclasses import dataclass

from .assign import assign
from .device_counts import Board
from .device_options import Menu
from .disaggregation import Bin, deal
from .groups import usable
from .pins import pin, placements_of
from .problem import Allocation, Problem
from .relaxation import Relaxation, most_points
from .switching_cost import Loads

#: What is served is the demand, within this relative tolerance.
EXACT = 1e-6
#: Gaps that differ by less are the same gap.
PRECISION = 1e-6


@dataclass(frozen=True, eq=False)
class Seating:
    """``hosts``: bins by device id. ``value``: of the counts, less the price of what has to be loaded."""

    hosts: dict[str, Bin]
    value: float


def seated(board: Board, loads: Loads) -> Seating:
    """The board's residents on the devices that have them loaded, as far as possible."""
    hosts: dict[str, Bin] = {}
    price = 0.0
    for g, (group, bins) in enumerate(zip(board.menu.groups, deal(board), strict=True)):
        wanted = [frozenset([seat.variant.id for seat in bin_.seats]) for bin_ in bins]
        devices = assign(group.devices, wanted, lambda variant, g=g: loads.price(g, variant))
        for device, bin_, variants in zip(devices, bins, wanted, strict=True):
            hosts[device.id] = bin_
            price += sum([loads.price(g, variant) for variant in sorted(variants - device.loaded)])
    return Seating(hosts, board.value - price)


def allocation_of(
    problem: Problem, menu: Menu, relaxed: Relaxation, seating: Seating, enough: float
) -> tuple[Allocation, list[str]]:
    """The allocation, and the pinned variants for which there was no room.

    ``enough``: the gap up to which it counts as optimal."""
    hosts = [(device, seating.hosts.get(device.id) or Bin(0.0)) for device in problem.devices if usable(device)]
    missing = pin(problem, hosts)
    weight = {a.id: a.weight for a in problem.applications}
    served = {a.id: 0.0 for a in problem.applications}
    items = accurate = points = 0.0
    for _, bin_ in hosts:
        for seat in bin_.seats:
            variant, rate = seat.variant, seat.rate
            if rate > 0:
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
        # Serving less leaves time for more accuracy: the bound must allow for that.
        bound = most_points(menu, weighted)
    gap = max(_gap(weighted, relaxed.served), _gap(points, bound))
    demand = sum(a.weight * a.demand for a in problem.applications)
    placements, moves = placements_of(hosts)
    plan = Allocation(
        placements=placements,
        served=served,
        left_out=left_out,
        accuracy=accurate / items if items > 0 else 0.0,
        turn_gap_s={device.id: bin_.gap_s for device, bin_ in hosts if bin_.gap_s},
        objective=points / demand,
        bound=max(bound, points) / demand,
        gap=gap,
        status="empty" if not placements else "optimal" if gap <= enough + PRECISION else "feasible",
        moves=moves,
        prices=_by_type(problem, menu, relaxed),
    )
    return plan, missing


def nothing_planned(problem: Problem) -> tuple[Allocation, list[str]]:
    """Nothing can be served, or nothing is asked for; pinned variants stand by all the same."""
    hosts = [(device, Bin(0.0)) for device in problem.devices if usable(device)]
    missing = pin(problem, hosts)
    placements, moves = placements_of(hosts)
    plan = Allocation(
        placements=placements,
        served={a.id: 0.0 for a in problem.applications},
        left_out={a.id: a.demand for a in problem.applications},
        accuracy=0.0,
        status="optimal" if placements else "empty",
        moves=moves,
        prices={device.type: 0.0 for device in problem.devices},
    )
    return plan, missing


def _gap(value: float, bound: float) -> float:
    if bound <= 0:
        return 0.0
    if value <= 0:
        return 1.0
    gap = (bound - value) / value
    return gap if gap > 1e-9 else 0.0


def _by_type(problem: Problem, menu: Menu, relaxed: Relaxation) -> dict[str, float]:
    """Prices by device type: of several groups of a type, the mean over their devices."""
    total = {device.type: 0.0 for device in problem.devices}
    count: dict[str, int] = {}
    for group, price in zip(menu.groups, relaxed.prices, strict=True):
        total[group.one.type] += float(price) * len(group)
        count[group.one.type] = count.get(group.one.type, 0) + len(group)
    return {kind: value / count.get(kind, 1) for kind, value in total.items()}
