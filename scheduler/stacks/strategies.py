"""Allocation strategies by name: functions Problem -> Allocation.

Live plans and simulations use the same ones.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from scheduler.allocation.pins import with_pinned
from scheduler.allocation.problem import Allocation, Problem, Strategy
from scheduler.allocation.solver import watched
from scheduler.allocation.standby import with_standby
from scheduler.allocation.verification import check

from .registry import STRATEGIES

#: the papers', and `nereus`: weighted queries served come first, then accuracy
_STRATEGIES: dict[str, Strategy] = {**STRATEGIES, "nereus": with_standby}


class UnknownStrategy(ValueError):
    pass


def names() -> tuple[str, ...]:
    return tuple(sorted(_STRATEGIES))


def get(name: str) -> Strategy:
    """The strategy of that name.

    It gets usable problems only, without excluded variants, and raises
    :class:`scheduler.allocation.verification.UnusableProblem` for others. Pinned variants that a paper's strategy does
    not place are added as standby where they fit; ``moves``, ``solve_s`` and ``cut_short`` are set. Reasons are made on
    demand (:func:`scheduler.allocation.reasons.explained`).

    Raises:
        UnknownStrategy: the message lists the names there are.
    """
    if name not in _STRATEGIES:
        raise UnknownStrategy(f"strategy: {name!r} is not one of {', '.join(names())}")
    return partial(_solved, name)


def _solved(name: str, problem: Problem) -> Allocation:
    check(problem)
    began = time.monotonic()
    if any(variant.excluded for variant in problem.variants):
        problem = replace(problem, variants=tuple(v for v in problem.variants if not v.excluded))
    with watched() as watch:
        allocation = _STRATEGIES[name](problem)
    if name in STRATEGIES:
        allocation, _ = with_pinned(problem, allocation)
    loaded = {device.id: device.loaded for device in problem.devices}
    return replace(
        allocation,
        moves=sum([p.variant not in loaded[p.device] for p in allocation.placements]),
        method=allocation.method or ("milp" if watch.milp else ""),
        cut_short=watch.cut_short,
        solve_s=time.monotonic() - began,
    )
