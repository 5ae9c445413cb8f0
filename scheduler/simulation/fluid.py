"""The fluid reference: the best accuracy of any plan under the SLO/2 rule, if demand were known and flowed evenly.

For each window of 5 s a linear program: z[t,m] items/s of variant m on device type t, the time that they take at the
fastest batch within SLO / 2 at most the devices of the type (devices may be divided at will), all demand served; where
that is not possible, as much as possible first and then as accurately as possible. No queues, no rounding, no loads.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pyscipopt import quicksum

from scheduler.allocation.capacity import dedicated_capacity
from scheduler.allocation.problem import Profile
from scheduler.allocation.proteus import SERVED_TOLERANCE
from scheduler.allocation.solver import maximise, new_model

from .scenario import Scenario

WINDOW_S = 5.0
#: seconds that a window's linear program may take; it needs milliseconds
LIMIT_S = 10.0


@dataclass(frozen=True)
class _Option:
    kind: str
    application: str
    accuracy: float
    rate: float


def fluid_reference(scenario: Scenario) -> float | None:
    """Mean accuracy (normalised percent) over the items that can be served; None where none can.

    Windows start at 0 and go by arrival; each is taken as a whole 5 s, the last one too.
    """
    counts: dict[int, Counter] = {}
    names = scenario.applications
    for t, index in zip(scenario.arrivals.times, scenario.arrivals.applications, strict=True):
        counts.setdefault(int(t // WINDOW_S), Counter())[names[index]] += 1
    devices = Counter(kind for _, kind in scenario.devices)
    options = _options(scenario)
    total = weighted = 0.0
    for window in counts.values():
        served, accuracy = _window(options, devices, {name: n / WINDOW_S for name, n in window.items()})
        total += served
        weighted += served * accuracy
    return weighted / total if total > 0 else None


def _options(scenario: Scenario) -> list[_Option]:
    options = []
    for model in scenario.models:
        for kind, points in model.points.items():
            capacity = dedicated_capacity(Profile(points), scenario.slo_s[model.application])
            if capacity is not None:
                options.append(_Option(kind, model.application, model.accuracy, capacity.rate))
    return options


def _window(options: list[_Option], devices: Counter, demand: dict[str, float]) -> tuple[float, float]:
    """Items/s served, and their mean accuracy."""
    options = [option for option in options if option.application in demand]
    if not options:
        return 0.0, 0.0
    asked = sum(demand.values())
    solution = _solve(options, devices, demand, asked)
    if solution is None:
        most, _ = _solve(options, devices, demand, None)
        solution = _solve(options, devices, demand, most * (1 - SERVED_TOLERANCE))
    served, accurate = solution or (0.0, 0.0)
    return served, accurate / served if served > 0 else 0.0


def _solve(
    options: list[_Option], devices: Counter, demand: dict[str, float], least: float | None
) -> tuple[float, float] | None:
    """(sum of z, sum of A z), the second maximised while at least ``least`` is served; None where that cannot be.
    Without ``least`` the first is maximised."""
    model = new_model()
    z = [model.addVar(f"z{i}", lb=0) for i in range(len(options))]
    for kind, count in devices.items():
        times = [v / o.rate for v, o in zip(z, options, strict=True) if o.kind == kind]
        if times:
            model.addCons(quicksum(times) <= count)
    for name, rate in demand.items():
        mine = [v for v, o in zip(z, options, strict=True) if o.application == name]
        if mine:
            model.addCons(quicksum(mine) <= rate)
    if least is not None:
        model.addCons(quicksum(z) >= least)
        objective = quicksum(o.accuracy * v for v, o in zip(z, options, strict=True))
    else:
        objective = quicksum(z)
    solution = maximise(model, objective, LIMIT_S, 0.0)
    if solution is None:
        return None
    values = [max(0.0, solution.values[f"z{i}"]) for i in range(len(options))]
    return sum(values), sum(o.accuracy * value for o, value in zip(options, values, strict=True))
