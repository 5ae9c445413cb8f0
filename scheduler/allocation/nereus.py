"""`nereus`: the most weighted queries first, then accuracy, on devices whose time is divided.

1. The relaxed problem (:mod:`.relaxation`) bounds every plan and prices devices' time.
2. Devices are counted out to applications, from the relaxed solution rounded down and from the plan in force, by
   exchanges valued exactly (:mod:`.device_counts`); what dedicated devices strand goes to shared ones
   (:mod:`.sharing_search`).
3. The counts become residents and rates (:mod:`.disaggregation`), on the devices that have them loaded
   (:mod:`.assign`). Of several counts the one that is worth most is taken, what it has to load paid for
   (:mod:`.switching_cost`). Where a few devices leave out what the bound says could be served, SCIP searches for it
   (:mod:`.sharing`).
4. Pinned variants get a place (:mod:`.pins`).

The certified gap is that between the plan as packed and the bound. Differences from Proteus' Eq. 1 to 7: a device is
dedicated to an application rather than to a variant, and devices may be shared between applications in turns.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from . import sharing
from .concrete import Seating, allocation_of, nothing_planned, seated
from .device_counts import Board, Shared
from .device_options import FLOOR, SERVED, Menu
from .disaggregation import employ_idle
from .groups import grouped
from .local_search import climb
from .pins import bins_of, reservations
from .problem import Allocation, Device, Problem
from .relaxation import Relaxation, relax
from .sharing_search import Refinement, fill
from .switching_cost import Loads
from .time_slices import turn_gaps

#: Gap asked for where the problem asks for none: a tenth of a point of accuracy.
GAP = 1e-3
#: Devices up to which what the counts leave out is sought for exactly.
EXACT_DEVICES = 6
#: Changes that gain less than this share of the weighted demand, in points, are not worth a step.
STEP = 1e-6


def solve(problem: Problem) -> Allocation:
    """The allocation, without reasons. ``objective`` and ``bound`` are percent: the sum over the demand of weight *
    accuracy / weighted demand."""
    plan, missing = _solve(problem, {})
    if missing:
        # Pinned variants found no room: they get theirs first, and the plan what they leave.
        reserved = reservations(problem, missing)
        if reserved:
            plan, _ = _solve(problem, reserved)
    return plan


def relaxed(problem: Problem) -> Relaxation | None:
    """The relaxed problem's optimum: the most that can be served, the bound on accuracy, and the prices of time. None
    where nothing can be served."""
    return _relaxed(problem, {})[1]


def _relaxed(problem: Problem, reserved: dict[str, Device]) -> tuple[Menu, Relaxation | None]:
    groups = grouped(reserved.get(device.id, device) for device in problem.devices)
    menu = Menu(groups, [a for a in problem.applications if a.demand > 0], problem.variants)
    return menu, relax(menu) if groups and menu.applications else None


def _solve(problem: Problem, reserved: dict[str, Device]) -> tuple[Allocation, list[str]]:
    """The allocation and the pinned variants without room in it. ``reserved``: by id, devices as far as plans go."""
    menu, bound = _relaxed(problem, reserved)
    if bound is None:
        return nothing_planned(problem)
    loads = Loads(menu, bound)
    seatings = []
    for board in _counts(problem, menu, bound, loads):
        employ_idle(board)
        seatings.append(seated(board, loads))
    best = max(seatings, key=lambda s: s.value)
    plan, missing = allocation_of(problem, menu, bound, best, max(problem.gap, GAP))
    if _worth_searching(problem, bound, plan):
        found = _searched(problem, menu, reserved)
        other, other_missing = allocation_of(problem, menu, bound, found, max(problem.gap, GAP))
        if _left_out(problem, other) < _left_out(problem, plan):
            return other, other_missing
    return plan, missing


def _left_out(problem: Problem, plan: Allocation) -> float:
    return sum(a.weight * plan.left_out[a.id] for a in problem.applications)


def _worth_searching(problem: Problem, bound: Relaxation, plan: Allocation) -> bool:
    """Whether a few devices leave something out that they could serve for all that is known. Floors are beyond the
    exact search."""
    demand = sum(a.weight * a.demand for a in problem.applications)
    return (
        len(problem.devices) <= EXACT_DEVICES
        and _left_out(problem, plan) > 0
        and bound.served >= demand * (1 - 1e-6)
        and not any(a.floor for a in problem.applications)
    )


def _searched(problem: Problem, menu: Menu, reserved: dict[str, Device]) -> Seating:
    """Dedicated variants and turns, by SCIP over concrete devices."""
    devices = tuple(reserved.get(device.id, device) for device in problem.devices)
    variants = tuple(v for a in menu.applications for v in menu.variants(a.id))
    found = sharing.solve(replace(problem, devices=devices, variants=variants))
    return Seating({device.id: bin_ for device, bin_ in bins_of(replace(problem, variants=variants), found)}, 0.0)


def _counts(problem: Problem, menu: Menu, relaxed: Relaxation, loads: Loads) -> list[Board]:
    """The counts to choose from, at least one; the plan in force's first."""
    least = STEP * sum(a.weight * a.demand for a in menu.applications)
    # The most that there could be, in the board's terms.
    bound = relaxed.points + SERVED * relaxed.served + (FLOOR - SERVED) * relaxed.floors
    enough = bound - max(problem.gap, GAP) * relaxed.points
    found = []
    if problem.previous is not None and loads.cost_time:
        kept = _in_force(Menu(menu.groups, menu.applications, problem.variants, loaded_only=True), problem.previous)
        if kept.value >= enough:
            return [kept]
        climb(kept, least, enough)
        found.append(kept)
    board = Board(menu)
    board.set(np.floor(relaxed.time + 1e-6))
    climb(board, least, enough)
    if board.value < enough:
        gaps = turn_gaps(menu.applications) if any(_shareable(group.one) for group in menu.groups) else []
        shared = Board(menu)
        shared.set(np.floor(relaxed.time + 1e-6))
        fill(shared, gaps, least)
        board = max((board, shared), key=lambda b: b.value)
        Refinement(board, gaps, least, enough).run()
    return [*found, board]


def _shareable(device: Device) -> bool:
    return device.max_resident is None or device.max_resident > 1


def _in_force(menu: Menu, previous: Allocation) -> Board:
    """The counts of an earlier plan, as far as they still apply."""
    group_of = {device.id: g for g, group in enumerate(menu.groups) for device in group.devices}
    index = {a.id: q for q, a in enumerate(menu.applications)}
    owner = {v.id: index[a.id] for a in menu.applications for v in menu.variants(a.id)}
    working: dict[str, list] = {}
    for placement in previous.placements:
        if placement.rate > 0 and placement.device in group_of and placement.variant in owner:
            working.setdefault(placement.device, []).append(placement)
    dedicated = np.zeros((len(menu.applications), len(menu.groups)), dtype=int)
    shared = []
    for device, residents in working.items():
        g, gap_s = group_of[device], previous.turn_gap_s.get(device, 0.0)
        if not gap_s:
            q = owner[residents[0].variant]
            dedicated[q, g] += bool(menu.cards[q].offers[g])
            continue
        wanted = {(p.variant, p.max_batch) for p in residents}
        table = menu.turns(g, gap_s)
        turns = [
            (int(q), turn, earns)
            for q, turn, earns in zip(table.owner, table.turns, table.earns, strict=True)
            if (turn.variant.id, turn.rows) in wanted
        ]
        if turns:
            shared.append(Shared(g, gap_s, tuple(turns)))
    board = Board(menu)
    board.set(dedicated, shared)
    return board
