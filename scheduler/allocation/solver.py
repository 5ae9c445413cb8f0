"""SCIP with common settings: one thread, silent, deterministic, bounded in time.

Identical models give identical solutions unless the time limit, the only clock here, cuts a solve short.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from pyscipopt import LP, Model


class Budget:
    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())


@dataclass
class Watch:
    """``cut_short``: a time limit ended a search; ``milp``: SCIP solved a MILP."""

    cut_short: bool = False
    milp: bool = False


_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched() -> Iterator[Watch]:
    """Watch all searches in this block, which a strategy may nest."""
    watch = Watch()
    token = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(token)


def time_ran_out() -> None:
    watch = _watch.get()
    if watch is not None:
        watch.cut_short = True


@dataclass(frozen=True)
class Solution:
    values: Mapping[str, float]
    objective: float
    bound: float
    proven: bool
    """the solver reached the gap that was asked for"""


def new_model() -> Model:
    model = Model()
    model.hideOutput()
    model.setParam("lp/threads", 1)
    model.setParam("parallel/maxnthreads", 1)
    model.setParam("misc/catchctrlc", False)
    return model


def solved(lp: LP) -> bool:
    """Whether the linear program has an optimum.

    Presolving sometimes reduces it to nothing and loses the solution; the primal simplex then restores it.
    """
    lp.solve()
    if not lp.isOptimal():
        lp.solve(dual=False)
    return bool(lp.isOptimal())


def maximise(
    model: Model,
    objective: Any,
    seconds: float,
    gap: float,
    start: Mapping[str, float] | None = None,
    nodes: int | None = None,
) -> Solution | None:
    """The best solution; None: there is none, or none was found within these limits.

    ``gap``: relative; ``start``: values of a feasible solution; ``nodes``: so that runs with enough time repeat.
    """
    model.setObjective(objective, "maximize")
    model.setParam("limits/time", max(seconds, 0.01))
    model.setParam("limits/gap", max(gap, 0.0))
    if nodes is not None:
        model.setParam("limits/totalnodes", nodes)
    if start is not None:
        solution = model.createSol()
        for variable in model.getVars():
            model.setSolVal(solution, variable, start.get(variable.name, 0.0))
        # The model may reject it because of rounding; the solve then starts without one.
        model.addSol(solution)
    # Without the interpreter's lock, so that other threads of the process go on.
    model.optimizeNogil()
    if model.getStatus() == "timelimit":
        time_ran_out()
    if model.getNSols() == 0:
        return None
    watch = _watch.get()
    if watch is not None:
        watch.milp = True
    best = model.getBestSol()
    return Solution(
        values={v.name: model.getSolVal(best, v) for v in model.getVars()},
        objective=model.getSolObjVal(best),
        bound=model.getDualbound(),
        proven=model.getStatus() in ("optimal", "gaplimit"),
    )


def names(parts: Iterable[object]) -> str:
    return "_".join(map(str, parts))
