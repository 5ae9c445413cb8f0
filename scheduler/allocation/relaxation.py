"""The relaxed problem: demand flows, and devices may be divided at will. It bounds every plan, and prices time.

A linear program over y[o], the share of an application's demand that goes to option o (a variant on a group's devices):
sum over a group's options of y * demand / rate <= devices of the group; sum over an application's options of y + what
is left out = 1. Shared devices need no options of their own: no turn does more items in its time than the fastest batch
within SLO / 2 does, for turns are limited to min(D, SLO - D) <= SLO / 2.

Where residents are limited, by number or by memory, an option that serves y is resident on max(y, y * demand / rate)
devices at least (on one where y > 0, which is relaxed), and residents add up to what the group's devices hold.

The LP solver is SCIP's own, used directly: a program of this size takes it about a millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyscipopt import LP

from .device_options import Menu

_INFINITE = 1e20
#: How far (relative) later stages may fall behind what earlier ones reached: the LP solver's own tolerance.
SLACK = 1e-7


@dataclass(frozen=True)
class Relaxation:
    """``served``: most weighted items/s that can be served once floors are (``floors``: weighted items/s of them);
    ``points``: most weighted items/s times accuracy while serving that. ``time``: devices used, application x group.
    ``prices``: points/s of one more second of a device's time each second, by group."""

    served: float
    floors: float
    points: float
    time: np.ndarray
    prices: np.ndarray


class _Program:
    def __init__(self, menu: Menu):
        self.menu = menu
        applications, groups = menu.applications, menu.groups
        self.columns = [
            (q, g, offer) for q, card in enumerate(menu.cards) for g, mine in enumerate(card.offers) for offer in mine
        ]
        self.worth = [a.weight * a.demand for a in applications]
        self.scale = sum(self.worth)
        self._left = len(self.columns)
        rows = len(groups)
        self.lp = lp = LP(sense="maximize")
        sizes = [float(len(group)) for group in groups]
        lp.addRows([[]] * (rows + len(applications)), [-_INFINITE] * rows + [1.0] * len(applications),
                   sizes + [1.0] * len(applications))  # fmt: skip
        entries = [[(g, applications[q].demand / offer.rate), (rows + q, 1.0)] for q, g, offer in self.columns]
        entries += [[(rows + q, 1.0)] for q in range(len(applications))]
        self.accuracy = [self.worth[q] / self.scale * offer.variant.accuracy for q, _, offer in self.columns]
        entries = [row + limits for row, limits in zip(entries, self._add_limits(), strict=True)]
        count = len(entries)
        lp.addCols(entries, self.accuracy + [0.0] * len(applications), [0.0] * count,
                   [_INFINITE] * self._left + [0.0] * len(applications))  # fmt: skip

    def _add_limits(self) -> list[list[tuple[int, float]]]:
        """Rows for what a group's devices may hold, and every column's entries in them."""
        entries: list[list[tuple[int, float]]] = [[] for _ in range(len(self.columns) + len(self.worth))]
        for g, group in enumerate(self.menu.groups):
            most, memory = group.one.max_resident, group.one.memory_bytes
            for limited in ("number", "memory"):
                if (most if limited == "number" else memory) is None:
                    continue
                row = self.lp.nrows()
                self.lp.addRow([], -_INFINITE, float(len(group)))
                for column, (q, owner, offer) in enumerate(self.columns):
                    if owner == g:
                        size = 1 / most if limited == "number" else offer.memory_bytes / max(memory, 1)
                        hosts = max(1.0, self.menu.applications[q].demand / offer.rate)
                        if size > 0:
                            entries[column].append((row, size * hosts))
        return entries

    def solve(self) -> bool:
        """Whether there is an optimum."""
        self.lp.solve()
        return bool(self.lp.isOptimal())

    def must_solve(self) -> None:
        """Solve where there is an optimum for certain. Presolving now and then reduces the program to nothing, and
        the solver forgets the solution: the primal simplex, from there, finds it again."""
        if not self.solve():
            self.lp.solve(dual=False)

    def allow_leaving_out(self) -> None:
        for q in range(len(self.worth)):
            self.lp.chgBound(self._left + q, 0.0, 1.0)

    def seek(self, accuracy: float, left: Sequence[float]) -> None:
        """Maximise accuracy (times a factor) less a price on what is left out."""
        for i, value in enumerate(self.accuracy):
            self.lp.chgObj(i, accuracy * value)
        for q, price in enumerate(left):
            self.lp.chgObj(self._left + q, -price)

    def limit_left_out(self, prices: Sequence[float], most: float) -> None:
        entries = [(self._left + q, price) for q, price in enumerate(prices) if price > 0]
        self.lp.addRow(entries, -_INFINITE, most)

    def left(self) -> np.ndarray:
        """Share left out, by application."""
        return np.clip(np.array(self.lp.getPrimal()[self._left : self._left + len(self.worth)]), 0.0, 1.0)

    def add_floor_shortfalls(self) -> int:
        """A column for each floor's shortfall, v >= u - (1 - floor), in shares of the demand. Returns the first."""
        first = self.lp.ncols()
        for q, application in enumerate(self.menu.applications):
            self.lp.addCol([], 0.0, 0.0, 1.0)
            self.lp.addRow([(self._left + q, 1.0), (first + q, -1.0)], -_INFINITE, 1.0 - application.floor)
        return first


def relax(menu: Menu) -> Relaxation | None:
    """The relaxed optimum; None where no application has any option."""
    program = _Program(menu)
    if not program.columns:
        return None
    worth, scale = program.worth, program.scale
    everything = sum(worth)
    floors = sum(w * a.floor for w, a in zip(worth, menu.applications, strict=True))
    if program.solve():
        served, prices = everything, _prices(program)
    else:
        program.allow_leaving_out()
        prices = _worth_of_serving_more(program)
        share = [w / scale for w in worth]
        if floors > 0:
            first = program.add_floor_shortfalls()
            program.seek(0.0, [0.0] * len(worth))
            for q, w in enumerate(share):
                program.lp.chgObj(first + q, -w)
            program.must_solve()
            short = max(0.0, -program.lp.getObjVal())
            floors -= short * scale
            program.lp.addRow([(first + q, w) for q, w in enumerate(share)], -_INFINITE, short + SLACK)
            for q in range(len(share)):
                program.lp.chgObj(first + q, 0.0)
        program.seek(0.0, share)
        program.must_solve()
        missing = float(np.dot(program.left(), share))
        served = everything - missing * scale
        program.limit_left_out(share, missing + SLACK)
        program.seek(1.0, [0.0] * len(worth))
        program.must_solve()
    time = np.zeros((len(menu.applications), len(menu.groups)))
    points = 0.0
    for (q, g, offer), y, value in zip(program.columns, program.lp.getPrimal(), program.accuracy, strict=False):
        if y > 0:
            time[q, g] += y * menu.applications[q].demand / offer.rate
            points += y * value
    return Relaxation(served, floors, points * scale, time, prices)


def most_points(menu: Menu, served: float) -> float:
    """An upper bound of the weighted items/s times accuracy of any plan that serves ``served`` weighted items/s."""
    program = _Program(menu)
    program.allow_leaving_out()
    share = [w / program.scale for w in program.worth]
    program.limit_left_out(share, max(0.0, 1.0 - served / program.scale) + SLACK)
    program.must_solve()
    return program.lp.getObjVal() * program.scale


def _prices(program: _Program) -> np.ndarray:
    """Duals of the rows of time, for a second of the time that queries may use."""
    groups = program.menu.groups
    duals = np.array(program.lp.getDual()[: len(groups)])
    return np.maximum(duals, 0.0) * program.scale / np.array([g.one.available for g in groups])


def _worth_of_serving_more(program: _Program) -> np.ndarray:
    """In overload time is priced by what it would serve: an item is worth its accuracy, and nothing if left out."""
    program.seek(1.0, [0.0] * len(program.worth))
    program.must_solve()
    return _prices(program)
