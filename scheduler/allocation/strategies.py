"""Allocation strategies by name: functions Problem -> Allocation.

Live plans and simulations use the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from scheduler.stacks.registry import STRATEGIES

from .pins import with_pinned
from .problem import Allocation, Problem
from .solver import watched
from .standby import with_standby
from .verification import faults

Strategy = Callable[[Problem], Allocation]


class UnknownStrategy(ValueError):
    pass


class UnusableProblem(ValueError):
    def __init__(self, faults: list[str]):
        super().__init__("; ".join(faults))
        self.faults = faults


#: the papers', and `nereus`: weighted queries served come first, then accuracy
_STRATEGIES: dict[str, Strategy] = {**STRATEGIES, "nereus": with_standby}


def names() -> tuple[str, ...]:
    return tuple(sorted(_STRATEGIES))


def get(name: str) -> Strategy:
    """The strategy of that name.

    It gets usable problems only, without excluded variants. Pinned variants that it does not place are added as standby
    where they fit; solve time and ``cut_short`` are set. Reasons are made on demand
    (:func:`scheduler.allocation.reasons.explained`). It raises :class:`UnusableProblem` for a problem with
    :func:`scheduler.allocation.verification.faults`.

    Raises:
        UnknownStrategy: the message lists the names there are.
    """
    if name not in _STRATEGIES:
        raise UnknownStrategy(f"strategy: {name!r} is not one of {', '.join(names())}")
    return partial(_solved, _STRATEGIES[name])


def _solved(strategy: Strategy, problem: Problem) -> Allocation:
    found = faults(problem)
    if found:
        raise UnusableProblem(found)
    began = time.monotonic()
    if any(variant.excluded for variant in problem.variants):
        problem = replace(problem, variants=tuple(v for v in problem.variants if not v.excluded))
    with watched() as watch:
        allocation, _ = with_pinned(problem, strategy(problem))
    method = allocation.method or ("milp" if watch.milp else "")
    return replace(allocation, method=method, cut_short=watch.cut_short, solve_s=time.monotonic() - began)
