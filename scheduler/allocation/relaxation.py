"""The relaxed problem: divisible devices. It bounds every plan and prices time.

A linear program over y[o], the share of an application's demand that goes to option o (a variant on a group's devices):
sum over a group's options of y * demand / rate <= devices of the group; sum over an application's options of y + what
is left out = 1. Shared devices need no options of their own: no slice serves more items in its time than the
fastest batch within SLO / 2, since slices are limited to min(D, SLO - D) <= SLO / 2.

Where residents are limited, by number or by memory, an option that serves y is resident on max(y, y * demand / rate)
devices at least (on one where y > 0, which is relaxed), and residents add up to what the group's devices hold.

SCIP's LP solver is used directly; a program of this size takes about a millisecond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyscipopt import LP

from .group_options import GroupOptions
from .solver import solved

_INFINITE = 1e20
#: Relative tolerance between stages: the LP solver's own.
SLACK = 1e-7


@dataclass(frozen=True)
class Relaxation:
    """The relaxed optimum.

    Attributes:
        served: largest weighted items/s that can be served after floors.
        floors: weighted items/s served of floors.
        points: largest weighted items/s times accuracy while serving that.
        time: devices used (application x group).
        prices: points/s of one more second of a device's time each second, by group.
        combined: largest weighted items/s times (accuracy + ``worth``), by the MILP; infinite where it did not run.
        limited: the same, where no more than ``counted`` weighted items/s are worth ``worth`` points each.
    """

    served: float
    floors: float
    points: float
    time: np.ndarray
    prices: np.ndarray
    combined: float = math.inf
    worth: float = 1.0
    limited: float = math.inf
    counted: float = math.inf


class _Program:
    def __init__(self, options: GroupOptions):
        self.options = options
        applications, groups = options.applications, options.groups
        self.columns = [
            (q, g, point)
            for q, own in enumerate(options.by_application)
            for g, mine in enumerate(own.operating_points)
            for point in mine
        ]
        self.weighted_demand = [a.weight * a.demand for a in applications]
        self.scale = sum(self.weighted_demand)
        self._left = len(self.columns)
        rows = len(groups)
        self.lp = lp = LP(sense="maximize")
        sizes = [float(len(group)) for group in groups]
        lp.addRows([[]] * (rows + len(applications)), [-_INFINITE] * rows + [1.0] * len(applications),
                   sizes + [1.0] * len(applications))  # fmt: skip
        entries = [[(g, applications[q].demand / point.rate), (rows + q, 1.0)] for q, g, point in self.columns]
        entries += [[(rows + q, 1.0)] for q in range(len(applications))]
        self.accuracy = [self.weighted_demand[q] / self.scale * point.variant.accuracy for q, _, point in self.columns]
        entries = [row + limits for row, limits in zip(entries, self._add_limits(), strict=True)]
        count = len(entries)
        lp.addCols(entries, self.accuracy + [0.0] * len(applications), [0.0] * count,
                   [_INFINITE] * self._left + [0.0] * len(applications))  # fmt: skip

    def _add_limits(self) -> list[list[tuple[int, float]]]:
        entries: list[list[tuple[int, float]]] = [[] for _ in range(len(self.columns) + len(self.weighted_demand))]
        for g, group in enumerate(self.options.groups):
            most, memory = group.one.max_resident, group.one.memory_bytes
            for limited in ("number", "memory"):
                if (most if limited == "number" else memory) is None:
                    continue
                row = self.lp.nrows()
                self.lp.addRow([], -_INFINITE, float(len(group)))
                for column, (q, owner, point) in enumerate(self.columns):
                    if owner == g:
                        size = 1 / most if limited == "number" else point.memory_bytes / max(memory, 1)
                        hosts = max(1.0, self.options.applications[q].demand / point.rate)
                        if size > 0:
                            entries[column].append((row, size * hosts))
        return entries

    def allow_leaving_out(self) -> None:
        for q in range(len(self.weighted_demand)):
            self.lp.chgBound(self._left + q, 0.0, 1.0)

    def seek(self, accuracy: float, left: Sequence[float]) -> None:
        for i, value in enumerate(self.accuracy):
            self.lp.chgObj(i, accuracy * value)
        for q, price in enumerate(left):
            self.lp.chgObj(self._left + q, -price)

    def limit_left_out(self, prices: Sequence[float], most: float) -> None:
        entries = [(self._left + q, price) for q, price in enumerate(prices) if price > 0]
        self.lp.addRow(entries, -_INFINITE, most)

    def left(self) -> np.ndarray:
        return np.clip(np.array(self.lp.getPrimal()[self._left : self._left + len(self.weighted_demand)]), 0.0, 1.0)

    def add_floor_shortfalls(self) -> int:
        """Add v >= u - (1 - floor) by application, u left out; the first column's number."""
        first = self.lp.ncols()
        for q, application in enumerate(self.options.applications):
            self.lp.addCol([], 0.0, 0.0, 1.0)
            self.lp.addRow([(self._left + q, 1.0), (first + q, -1.0)], -_INFINITE, 1.0 - application.floor)
        return first


def relax(options: GroupOptions) -> Relaxation | None:
    """The relaxed optimum; None where no application has any option."""
    program = _Program(options)
    if not program.columns:
        return None
    weighted_demand, scale = program.weighted_demand, program.scale
    everything = sum(weighted_demand)
    floors = sum(w * a.floor for w, a in zip(weighted_demand, options.applications, strict=True))
    if solved(program.lp):
        served, prices = everything, _prices(program)
    else:
        program.allow_leaving_out()
        prices = _overload_prices(program)
        share = [w / scale for w in weighted_demand]
        if floors > 0:
            first = program.add_floor_shortfalls()
            program.seek(0.0, [0.0] * len(weighted_demand))
            for q, w in enumerate(share):
                program.lp.chgObj(first + q, -w)
            solved(program.lp)
            short = max(0.0, -program.lp.getObjVal())
            floors -= short * scale
            program.lp.addRow([(first + q, w) for q, w in enumerate(share)], -_INFINITE, short + SLACK)
            for q in range(len(share)):
                program.lp.chgObj(first + q, 0.0)
        program.seek(0.0, share)
        solved(program.lp)
        missing = float(np.dot(program.left(), share))
        served = everything - missing * scale
        program.limit_left_out(share, missing + SLACK)
        program.seek(1.0, [0.0] * len(weighted_demand))
        solved(program.lp)
    time = np.zeros((len(options.applications), len(options.groups)))
    points = 0.0
    for (q, g, point), y, value in zip(program.columns, program.lp.getPrimal(), program.accuracy, strict=False):
        if y > 0:
            time[q, g] += y * options.applications[q].demand / point.rate
            points += y * value
    return Relaxation(served, floors, points * scale, time, prices)


def most_multiple(options: GroupOptions) -> float:
    """The largest multiple of the demand whose time devices have, places apart."""
    lp, groups = LP(sense="maximize"), len(options.groups)
    applications = len(options.applications)
    lp.addRows([[]] * (groups + applications), [-_INFINITE] * groups + [0.0] * applications,
               [float(len(group)) for group in options.groups] + [0.0] * applications)  # fmt: skip
    columns = [
        [(g, options.applications[q].demand / point.rate), (groups + q, 1.0)]
        for q, own in enumerate(options.by_application)
        for g, mine in enumerate(own.operating_points)
        for point in mine
    ]
    columns.append([(groups + q, -1.0) for q in range(applications)])
    count = len(columns)
    lp.addCols(columns, [0.0] * (count - 1) + [1.0], [0.0] * count, [_INFINITE] * count)
    return lp.getObjVal() if solved(lp) else 0.0


def most_points(options: GroupOptions, served: float) -> float:
    program = _Program(options)
    program.allow_leaving_out()
    share = [w / program.scale for w in program.weighted_demand]
    program.limit_left_out(share, max(0.0, 1.0 - served / program.scale) + SLACK)
    solved(program.lp)
    return program.lp.getObjVal() * program.scale


def _prices(program: _Program) -> np.ndarray:
    groups = program.options.groups
    duals = np.array(program.lp.getDual()[: len(groups)])
    return np.maximum(duals, 0.0) * program.scale / np.array([g.one.available for g in groups])


def _overload_prices(program: _Program) -> np.ndarray:
    """A served item counts its accuracy, one left out counts nothing."""
    program.seek(1.0, [0.0] * len(program.weighted_demand))
    solved(program.lp)
    return _prices(program)
