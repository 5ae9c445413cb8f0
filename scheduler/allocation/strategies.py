"""The strategies by name. Each is a function :class:`Problem` -> :class:`Allocation`, the same live and simulated."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from . import nereus, proteus, sharing
from .baselines import BASELINES
from .capacity import dedicated_capacity
from .pins import with_pinned
from .problem import Allocation, Problem
from .residents import Seat, dedicated_seat
from .solver import watched
from .standby import with_residents
from .verification import faults

Strategy = Callable[[Problem], Allocation]
_registry: dict[str, Strategy] = {}


class UnknownStrategy(ValueError):
    """No strategy has that name; the message lists those there are."""


class UnusableProblem(ValueError):
    """The problem contradicts itself or has values out of range; ``faults`` has a line for each."""

    def __init__(self, found: list[str]):
        super().__init__("; ".join(found))
        self.faults = found


def register(name: str) -> Callable[[Strategy], Strategy]:
    """Make a strategy known as ``name``. It gets usable problems only, without variants that are excluded; pinned ones
    that it left away stand by where there is room; its solve time is added, and whether time ran out on the way.
    Reasons are made by those who read them (:func:`scheduler.allocation.reasons.explained`)."""

    def known_as(strategy: Strategy) -> Strategy:
        if name in _registry:
            raise ValueError(f"name: the strategy {name!r} is registered already")

        def run(problem: Problem) -> Allocation:
            found = faults(problem)
            if found:
                raise UnusableProblem(found)
            began = time.monotonic()
            if any(variant.excluded for variant in problem.variants):
                problem = replace(problem, variants=tuple(v for v in problem.variants if not v.excluded))
            with watched() as watch:
                allocation = with_pinned(problem, strategy(problem))
            # Counted here for all, since some strategies solve a changed copy of the problem.
            loaded = {device.id: device.loaded for device in problem.devices}
            moves = sum([p.variant not in loaded[p.device] for p in allocation.placements])
            return replace(allocation, moves=moves, cut_short=watch.cut_short, solve_s=time.monotonic() - began)

        run.__name__, run.__doc__ = strategy.__name__, strategy.__doc__
        _registry[name] = run
        return run

    return known_as


def names() -> tuple[str, ...]:
    """The names of all strategies, sorted."""
    return tuple(sorted(_registry))


def get(name: str) -> Strategy:
    """The strategy of that name.

    Strategies raise :class:`UnusableProblem` for a problem with :func:`scheduler.allocation.verification.faults`.

    Raises:
        UnknownStrategy: the message lists the names there are.
    """
    try:
        return _registry[name]
    except KeyError:
        raise UnknownStrategy(f"strategy: {name!r} is not one of {', '.join(names())}") from None


for _name, _strategy in BASELINES.items():
    register(_name)(_strategy)


@register("nereus")
def time_sharing(problem: Problem) -> Allocation:
    """Devices divided among variants and applications: the most weighted queries first, then accuracy."""
    return with_residents(problem, nereus.solve)


@register("proteus")
def proteus_with_sharing(problem: Problem) -> Allocation:
    """Proteus' Eq. 1 to 7; where dedicated devices leave demand out, devices may be shared too.

    Of the two the one that serves more weighted items is taken, then the more accurate one, then the dedicated one.
    """
    began = time.monotonic()
    dedicated = proteus.solve(replace(problem, time_limit_s=problem.time_limit_s * 0.4))
    if not any(dedicated.left_out.values()):
        return dedicated
    left = max(problem.time_limit_s - (time.monotonic() - began), 0.05)
    shared = sharing.solve(replace(problem, time_limit_s=left), _seats(problem, dedicated))
    if _worth(problem, shared) > _worth(problem, dedicated):
        return shared
    if shared.status != "feasible":
        return dedicated
    # Not proven: sharing might still do better, by as much as its gap says.
    return replace(dedicated, status="feasible", gap=max(dedicated.gap, shared.gap))


def _seats(problem: Problem, dedicated: Allocation) -> list[Seat]:
    devices = {d.id: d for d in problem.devices}
    variants = {v.id: v for v in problem.variants}
    slo = {a.id: a.slo_s for a in problem.applications}
    seats = []
    for placement in dedicated.placements:
        device, variant = devices[placement.device], variants[placement.variant]
        capacity = dedicated_capacity(variant.profiles[device.type], slo[variant.application])
        seats.append(dedicated_seat(device, variant, capacity))
    return seats


def _worth(problem: Problem, allocation: Allocation) -> tuple[float, float]:
    """Weighted items served and accuracy, to the digits that the solver's tolerance leaves."""
    demand = sum(a.weight * a.demand for a in problem.applications)
    served = sum(a.weight * allocation.served[a.id] for a in problem.applications)
    return round(served / demand, 5) if demand > 0 else 0.0, round(allocation.accuracy, 3)
