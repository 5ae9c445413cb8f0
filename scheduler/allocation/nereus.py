"""`nereus`: the most weighted queries first, then accuracy, on devices whose time is divided.

1. The relaxed problem (:mod:`.relaxation`) bounds every plan and prices devices' time.
2. Devices are counted out to applications, from the relaxed solution rounded down and from the plan in force, by
   exchanges valued exactly (:mod:`.board`); what dedicated devices strand goes to shared ones (:mod:`.knapsack`).
3. The counts become residents and rates (:mod:`.deal`), on the devices that have them loaded (:mod:`.assign`).
4. The gap is that between the plan as packed and the bound.

Differences from Proteus' Eq. 1 to 7: a device is dedicated to an application rather than to a variant, and devices may
be shared between applications in turns.
"""

from __future__ import annotations

import numpy as np

from .assign import assign
from .board import Board, climb
from .deal import deal, employ_idle
from .groups import grouped
from .menu import FLOOR, SERVED, Menu
from .problem import Allocation, Placement, Problem
from .refine import fill, refine
from .relaxation import Relaxation, most_points, relax
from .turns import turn_gaps

#: Gap asked for where the problem asks for none: a tenth of a point of accuracy.
GAP = 1e-3
#: Changes that gain less than this share of the weighted demand, in points, are not worth a step.
STEP = 1e-6
#: What is served is the demand within this relative tolerance.
EXACT = 1e-6


def solve(problem: Problem) -> Allocation:
    """The allocation, without reasons. ``objective`` and ``bound`` are percent: the sum over the demand of weight *
    accuracy / weighted demand."""
    groups = grouped(problem.devices)
    demanding = [a for a in problem.applications if a.demand > 0]
    menu = Menu(groups, demanding, problem.variants)
    relaxed = relax(menu) if groups and demanding else None
    if relaxed is None:
        return _empty(problem)
    board = _counts(menu, relaxed, max(problem.gap, GAP))
    employ_idle(board)
    return _allocation(problem, menu, relaxed, board)


def _counts(menu: Menu, relaxed: Relaxation, gap: float) -> Board:
    demand = sum(a.weight * a.demand for a in menu.applications)
    least = STEP * demand
    board = Board(menu)
    board.set(np.floor(relaxed.time + EXACT))
    climb(board, least)
    # The most that there could be, in the board's terms.
    bound = relaxed.points + SERVED * relaxed.served + (FLOOR - SERVED) * relaxed.floors
    if bound - board.value <= gap * relaxed.points:
        return board
    gaps = turn_gaps(menu.applications)
    refine(board, gaps, least)
    other = Board(menu)
    other.set(np.floor(relaxed.time + EXACT))
    fill(other, gaps, least)
    refine(other, gaps, least)
    return max((board, other), key=lambda b: b.value)


def _empty(problem: Problem) -> Allocation:
    return Allocation(
        placements=(),
        served={a.id: 0.0 for a in problem.applications},
        left_out={a.id: a.demand for a in problem.applications},
        accuracy=0.0,
        status="empty",
        prices={d.type: 0.0 for d in problem.devices},
    )


def _allocation(problem: Problem, menu: Menu, relaxed: Relaxation, board: Board) -> Allocation:
    demand = sum(a.weight * a.demand for a in menu.applications)
    weight = {a.id: a.weight for a in menu.applications}
    placements: list[Placement] = []
    gaps: dict[str, float] = {}
    served = dict.fromkeys((a.id for a in problem.applications), 0.0)
    items = accurate = points = 0.0
    moves = 0
    for group, bins in zip(menu.groups, deal(board), strict=True):
        hosts = assign(group.devices, [frozenset(s.variant.id for s in b.seats) for b in bins], lambda _: 1.0)
        for device, bin_ in zip(hosts, bins, strict=True):
            if bin_.gap_s:
                gaps[device.id] = bin_.gap_s
            for seat in bin_.seats:
                placements.append(Placement(device.id, seat.variant.id, seat.rate, seat.batch, seat.share))
                served[seat.variant.application] += seat.rate
                items += seat.rate
                accurate += seat.rate * seat.variant.accuracy
                points += weight[seat.variant.application] * seat.rate * seat.variant.accuracy
                moves += seat.variant.id not in device.loaded
    order = {device.id: i for i, device in enumerate(problem.devices)}
    placements.sort(key=lambda p: order[p.device])
    left_out = {}
    for application in problem.applications:
        missing = application.demand - served[application.id]
        left_out[application.id] = missing if missing > application.demand * EXACT else 0.0
        served[application.id] = application.demand - left_out[application.id]
    weighted = sum(a.weight * served[a.id] for a in menu.applications)
    bound = relaxed.points
    if weighted < relaxed.served * (1 - EXACT):
        bound = most_points(menu, weighted)
    gap = max(_gap(weighted, relaxed.served), _gap(points, bound))
    return Allocation(
        placements=tuple(placements),
        served=served,
        left_out=left_out,
        accuracy=accurate / items if items > 0 else 0.0,
        turn_gap_s=gaps,
        objective=points / demand,
        bound=max(bound, points) / demand,
        gap=gap,
        status="empty" if not placements else "optimal" if gap <= max(problem.gap, GAP) else "feasible",
        moves=moves,
        prices=_by_type(problem, menu, relaxed),
    )


def _gap(value: float, bound: float) -> float:
    if bound <= 0:
        return 0.0
    if value <= 0:
        return 1.0
    gap = (bound - value) / value
    return gap if gap > 1e-9 else 0.0


def _by_type(problem: Problem, menu: Menu, relaxed: Relaxation) -> dict[str, float]:
    """Prices by device type: of several groups of a type, the mean over their devices."""
    total: dict[str, float] = {d.type: 0.0 for d in problem.devices}
    count: dict[str, int] = {}
    for group, price in zip(menu.groups, relaxed.prices, strict=True):
        total[group.one.type] += float(price) * len(group)
        count[group.one.type] = count.get(group.one.type, 0) + len(group)
    return {kind: value / count.get(kind, 1) for kind, value in total.items()}
