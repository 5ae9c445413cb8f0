"""Allocation strategies by name: functions Problem -> Allocation.

Live plans and simulations use the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from scheduler.stacks.registry import STRATEGIES

from . import nereus
from .pins import with_pinned
from .problem import Allocation, Problem
from .solver import watched
from .standby import with_standby
from .verification import faults

Strategy = Callable[[Problem], Allocation]
_registry: dict[str, Strategy] = {}


class UnknownStrategy(ValueError):
    pass


class UnusableProblem(ValueError):
    def __init__(self, found: list[str]):
        super().__init__("; ".join(found))
        self.faults = found


def register(name: str) -> Callable[[Strategy], Strategy]:
    """Register a strategy as ``name``.

    It gets usable problems only, without excluded variants. Pinned variants that it does not place are added as standby
    where they fit; solve time and ``cut_short`` are set. Reasons are made on demand
    (:func:`scheduler.allocation.reasons.explained`)."""

    def decorate(strategy: Strategy) -> Strategy:
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
                allocation, _ = with_pinned(problem, strategy(problem))
            # Counted here, since some strategies solve a changed copy of the problem.
            loaded = {device.id: device.loaded for device in problem.devices}
            moves = sum([p.variant not in loaded[p.device] for p in allocation.placements])
            method = allocation.method or ("milp" if watch.milp else "")
            solve_s = time.monotonic() - began
            return replace(allocation, method=method, moves=moves, cut_short=watch.cut_short, solve_s=solve_s)

        run.__name__, run.__doc__ = name, strategy.__doc__
        _registry[name] = run
        return run

    return decorate


def names() -> tuple[str, ...]:
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


for _name, _strategy in STRATEGIES.items():
    register(_name)(_strategy)


@register("nereus")
def nereus_with_standby(problem: Problem) -> Allocation:
    return with_standby(problem, nereus.solve, nereus.start)
