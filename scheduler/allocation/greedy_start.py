"""Greedy start: a shared allocation that is made without a solver.

The solver starts from it. First every application gets the cheapest device time for its demand (time per item, over
devices, revisit periods and variants), then residents are exchanged for more accurate variants where the revisit period
still holds. Several orders of applications and choices of revisit periods are tried; most weighted items served wins,
then accuracy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

from .groups import IdenticalDevices
from .packing import Bin
from .problem import ApplicationDemand, DeviceResources, Problem
from .proteus import DedicatedOption
from .residents import ResidentCapacity, dedicated_resident
from .sharing_model import Choices
from .solver import Budget, time_ran_out
from .time_slices import SliceOption, slice_budget_s

_ENOUGH = 1e-9


@dataclass
class _OpenDevice:
    """A device being filled.

    Attributes:
        group: its group's index.
        rates: items/s meant for each resident, in the bin's order.
    """

    device: DeviceResources
    group: int
    bin: Bin | None = None
    rates: list[float] = field(default_factory=list)


def greedy_start(problem: Problem, offered: Choices, budget: Budget) -> list[ResidentCapacity]:
    """Residents of the best plan built within the budget (at least one is built)."""
    demand = [a for a in problem.applications if a.demand > 0]
    shared: dict[tuple[int, str], list[SliceOption]] = defaultdict(list)
    dedicated: dict[tuple[int, str], list[DedicatedOption]] = defaultdict(list)
    for option in offered.shared:
        shared[option.group, option.variant.application].append(option)
    for option in offered.dedicated:
        dedicated[option.group, option.variant.application].append(option)
    cost = {a.id: _least_cost(a, offered) for a in demand}
    demand = [a for a in demand if math.isfinite(cost[a.id])]
    hardest = sorted(demand, key=lambda a: (-cost[a.id] * a.demand, a.id))
    worthiest = sorted(demand, key=lambda a: (cost[a.id] / a.weight, a.id))
    # Tightest SLOs first, so that the first try opens revisit periods that admit them.
    tightest = sorted(demand, key=lambda a: (a.slo_s, -cost[a.id] * a.demand, a.id))
    periods = sorted({o.revisit_s for o in offered.shared})
    best: tuple[tuple[float, float], list[_OpenDevice]] | None = None
    for allowed in (set(periods), *({gap} for gap in periods)):
        for order in (tightest, hardest, worthiest):
            if best is not None and budget.left() <= 0:
                time_ran_out()
                break
            open_devices = [_OpenDevice(d, g) for g, group in enumerate(offered.groups) for d in group.devices]
            for application in order:
                _serve(application, open_devices, offered.groups, shared, dedicated, allowed)
            _improve(open_devices, offered.groups, shared, dedicated)
            score = _score(demand, open_devices)
            if best is None or score > best[0]:
                best = (score, open_devices)
    return [] if best is None else _residents(best[1])


def _least_cost(application: ApplicationDemand, offered: Choices) -> float:
    """Return the least share of any device's time that an item/s takes.

    It is infinite where the application cannot run.
    """
    costs = [1 / o.rate for o in offered.dedicated if o.variant.application == application.id]
    costs += [
        o.cost.seconds(o.cost.max_rows) / o.cost.max_rows
        for o in offered.shared
        if o.variant.application == application.id
    ]
    return min(costs, default=math.inf)


def _serve(application, open_devices, groups, shared, dedicated, allowed) -> None:
    left = application.demand
    while left > application.demand * _ENOUGH:
        best: tuple | None = None
        seen_empty: set[int] = set()
        for i, filling in enumerate(open_devices):
            key = (filling.group, application.id)
            if filling.bin is None:
                if filling.group in seen_empty:
                    continue
                seen_empty.add(filling.group)
                for option in dedicated[key]:
                    served = min(left, option.rate)
                    best = min(
                        best or (math.inf,), (1 / served, -option.variant.accuracy, i, 0, option, served), key=_rank
                    )
            elif filling.bin.dedicated is not None:
                continue
            for option in shared[key]:
                if option.revisit_s not in allowed or (
                    filling.bin is not None and filling.bin.revisit_s != option.revisit_s
                ):
                    continue
                fitting_rows = (filling.bin or Bin(option.revisit_s)).rows_that_fit(groups[filling.group], option)
                rows = min(fitting_rows, math.ceil(left * option.revisit_s * (1 - _ENOUGH)))
                if rows < 1:
                    continue
                served = min(left, rows / option.revisit_s)
                share = option.cost.seconds(rows) / slice_budget_s(groups[filling.group], option.revisit_s)
                best = min(
                    best or (math.inf,), (share / served, -option.variant.accuracy, i, rows, option, served), key=_rank
                )
        if best is None:
            return
        _, _, i, rows, option, served = best
        filling = open_devices[i]
        if rows == 0:
            filling.bin = Bin(0.0, dedicated=option)
        else:
            filling.bin = filling.bin or Bin(option.revisit_s)
            filling.bin.residents.append((option, rows))
        filling.rates.append(served)
        left -= served


def _rank(candidate: tuple) -> tuple:
    return candidate[:4]


def _improve(open_devices, groups: list[IdenticalDevices], shared, dedicated) -> None:
    """Exchange residents for more accurate ones of the same application.

    The largest gain comes first, while any fits.
    """
    for filling in open_devices:
        if filling.bin is None:
            continue
        if filling.bin.dedicated is not None:
            rivals = dedicated[filling.group, filling.bin.dedicated.variant.application]
            able = [o for o in rivals if o.rate >= filling.rates[0] * (1 - _ENOUGH)]
            filling.bin.dedicated = max(able, key=lambda o: (o.variant.accuracy, o.rate), default=filling.bin.dedicated)
            continue
        while True:
            best = None
            for i, (now, _) in enumerate(filling.bin.residents):
                others = Bin(filling.bin.revisit_s, filling.bin.residents[:i] + filling.bin.residents[i + 1 :])
                for option in shared[filling.group, now.variant.application]:
                    gain = (option.variant.accuracy - now.variant.accuracy) * filling.rates[i]
                    if option.revisit_s != now.revisit_s or gain <= 0:
                        continue
                    needed = math.ceil(filling.rates[i] * option.revisit_s * (1 - _ENOUGH))
                    fits = others.rows_that_fit(groups[filling.group], option) >= max(needed, 1)
                    if fits and (best is None or gain > best[0]):
                        best = (gain, i, option, max(needed, 1))
            if best is None:
                break
            _, i, option, rows = best
            filling.bin.residents[i] = (option, rows)


def _score(applications: list[ApplicationDemand], open_devices: list[_OpenDevice]) -> tuple[float, float]:
    weight = {a.id: a.weight for a in applications}
    served = accuracy = 0.0
    for filling in open_devices:
        if filling.bin is None:
            continue
        options = [o for o, _ in filling.bin.residents] if filling.bin.dedicated is None else [filling.bin.dedicated]
        for option, rate in zip(options, filling.rates, strict=True):
            served += weight[option.variant.application] * rate
            accuracy += weight[option.variant.application] * rate * option.variant.accuracy
    return round(served, 9), accuracy


def _residents(open_devices: list[_OpenDevice]) -> list[ResidentCapacity]:
    residents = []
    for filling in open_devices:
        if filling.bin is None:
            continue
        if filling.bin.dedicated is not None:
            residents.append(
                dedicated_resident(filling.device, filling.bin.dedicated.variant, filling.bin.dedicated.capacity)
            )
            continue
        revisit_s = filling.bin.revisit_s
        residents += [
            ResidentCapacity(filling.device, o.variant, rows / revisit_s, rows, revisit_s=revisit_s, cost=o.cost)
            for o, rows in filling.bin.residents
        ]
    return residents
