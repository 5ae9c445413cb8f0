"""A shared allocation built by hand, so that there always is a sensible one and the solver has where to start.

First every application gets the cheapest room there is for its demand (time per item, over devices, turn gaps and
variants), then residents are exchanged for more accurate variants where the turn gap still holds. Several orders of
applications and choices of turn gaps are tried; the one that serves the most weighted items wins, then accuracy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

from .groups import Group
from .packing import Bin
from .problem import Application, Device, Problem
from .proteus import Option
from .residents import Seat, dedicated_seat
from .sharing_model import Choices
from .solver import Budget, time_ran_out
from .time_slices import TurnOption, cycle_s

_ENOUGH = 1e-9


@dataclass
class _Place:
    """A device being filled; ``rates``: items/s meant for each resident, in the bin's order."""

    device: Device
    group: int
    bin: Bin | None = None
    rates: list[float] = field(default_factory=list)


def construct(problem: Problem, offered: Choices, budget: Budget) -> list[Seat]:
    """Seats of the best plan built while the budget lasts (at least one is)."""
    demand = [a for a in problem.applications if a.demand > 0]
    shared: dict[tuple[int, str], list[TurnOption]] = defaultdict(list)
    dedicated: dict[tuple[int, str], list[Option]] = defaultdict(list)
    for option in offered.shared:
        shared[option.group, option.variant.application].append(option)
    for option in offered.dedicated:
        dedicated[option.group, option.variant.application].append(option)
    cost = {a.id: _least_cost(a, offered) for a in demand}
    demand = [a for a in demand if math.isfinite(cost[a.id])]
    hardest = sorted(demand, key=lambda a: (-cost[a.id] * a.demand, a.id))
    worthiest = sorted(demand, key=lambda a: (cost[a.id] / a.weight, a.id))
    # Where there is time for one try only: the tightest first, so that turn gaps are opened that admit them.
    tightest = sorted(demand, key=lambda a: (a.slo_s, -cost[a.id] * a.demand, a.id))
    gaps = sorted({o.gap_s for o in offered.shared})
    best: tuple[tuple[float, float], list[_Place]] | None = None
    for allowed in (set(gaps), *({gap} for gap in gaps)):
        for order in (tightest, hardest, worthiest):
            if best is not None and budget.left() <= 0:
                time_ran_out()
                break
            places = [_Place(d, g) for g, group in enumerate(offered.groups) for d in group.devices]
            for application in order:
                _serve(application, places, offered.groups, shared, dedicated, allowed)
            _improve(places, offered.groups, shared, dedicated)
            score = _score(demand, places)
            if best is None or score > best[0]:
                best = (score, places)
    return [] if best is None else _seats(best[1])


def _least_cost(application: Application, offered: Choices) -> float:
    """Least share of any device's time that an item/s of the application takes; inf: it cannot run."""
    costs = [1 / o.rate for o in offered.dedicated if o.variant.application == application.id]
    costs += [
        o.cost.seconds(o.cost.max_rows) / o.cost.max_rows
        for o in offered.shared
        if o.variant.application == application.id
    ]
    return min(costs, default=math.inf)


def _serve(application, places, groups, shared, dedicated, allowed) -> None:
    left = application.demand
    while left > application.demand * _ENOUGH:
        best: tuple | None = None
        seen_empty: set[int] = set()
        for i, place in enumerate(places):
            key = (place.group, application.id)
            if place.bin is None:
                if place.group in seen_empty:
                    continue
                seen_empty.add(place.group)
                for option in dedicated[key]:
                    served = min(left, option.rate)
                    best = min(
                        best or (math.inf,), (1 / served, -option.variant.accuracy, i, 0, option, served), key=_rank
                    )
            elif place.bin.dedicated is not None:
                continue
            for option in shared[key]:
                if option.gap_s not in allowed or (place.bin is not None and place.bin.gap_s != option.gap_s):
                    continue
                room = (place.bin or Bin(option.gap_s)).rows_that_fit(groups[place.group], option)
                rows = min(room, math.ceil(left * option.gap_s * (1 - _ENOUGH)))
                if rows < 1:
                    continue
                served = min(left, rows / option.gap_s)
                share = option.cost.seconds(rows) / cycle_s(groups[place.group], option.gap_s)
                best = min(
                    best or (math.inf,), (share / served, -option.variant.accuracy, i, rows, option, served), key=_rank
                )
        if best is None:
            return
        _, _, i, rows, option, served = best
        place = places[i]
        if rows == 0:
            place.bin = Bin(0.0, dedicated=option)
        else:
            place.bin = place.bin or Bin(option.gap_s)
            place.bin.residents.append((option, rows))
        place.rates.append(served)
        left -= served


def _rank(candidate: tuple) -> tuple:
    return candidate[:4]


def _improve(places, groups: list[Group], shared, dedicated) -> None:
    """Exchange residents for more accurate ones of the same application, the largest gain first, while any fits."""
    for place in places:
        if place.bin is None:
            continue
        if place.bin.dedicated is not None:
            rivals = dedicated[place.group, place.bin.dedicated.variant.application]
            able = [o for o in rivals if o.rate >= place.rates[0] * (1 - _ENOUGH)]
            place.bin.dedicated = max(able, key=lambda o: (o.variant.accuracy, o.rate), default=place.bin.dedicated)
            continue
        while True:
            best = None
            for i, (now, _) in enumerate(place.bin.residents):
                others = Bin(place.bin.gap_s, place.bin.residents[:i] + place.bin.residents[i + 1 :])
                for option in shared[place.group, now.variant.application]:
                    gain = (option.variant.accuracy - now.variant.accuracy) * place.rates[i]
                    if option.gap_s != now.gap_s or gain <= 0:
                        continue
                    needed = math.ceil(place.rates[i] * option.gap_s * (1 - _ENOUGH))
                    fits = others.rows_that_fit(groups[place.group], option) >= max(needed, 1)
                    if fits and (best is None or gain > best[0]):
                        best = (gain, i, option, max(needed, 1))
            if best is None:
                break
            _, i, option, rows = best
            place.bin.residents[i] = (option, rows)


def _score(applications: list[Application], places: list[_Place]) -> tuple[float, float]:
    weight = {a.id: a.weight for a in applications}
    served = accuracy = 0.0
    for place in places:
        if place.bin is None:
            continue
        options = [o for o, _ in place.bin.residents] if place.bin.dedicated is None else [place.bin.dedicated]
        for option, rate in zip(options, place.rates, strict=True):
            served += weight[option.variant.application] * rate
            accuracy += weight[option.variant.application] * rate * option.variant.accuracy
    return round(served, 9), accuracy


def _seats(places: list[_Place]) -> list[Seat]:
    seats = []
    for place in places:
        if place.bin is None:
            continue
        if place.bin.dedicated is not None:
            seats.append(dedicated_seat(place.device, place.bin.dedicated.variant, place.bin.dedicated.capacity))
            continue
        gap_s = place.bin.gap_s
        seats += [
            Seat(place.device, o.variant, rows / gap_s, rows, turn_gap_s=gap_s, cost=o.cost)
            for o, rows in place.bin.residents
        ]
    return seats
