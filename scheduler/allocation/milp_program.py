"""Rows and columns of the MILP of `nereus` (:mod:`.milp`).

Linear programs and SCIP's models are made from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from pyscipopt import LP, Model, quicksum

from .device_counts import DeviceCounts, SharedDevice
from .group_options import SERVED, GroupOptions, TimeSlice
from .rounding_cuts import RoundingCut, counts
from .solver import favour_speed, new_model

#: Nodes of SCIP's tree.
NODES = 400
#: Seed of SCIP's choices among equals, and of what is drawn.
SEED = 1
#: Bounds beyond which the solvers know none.
INFINITE = 1e20
#: Points for each weighted share of floors that a linear program leaves unserved beyond what it may: its bounds stay
#: bounds at any price.
FLOOR_PRICE = 10 * SERVED
#: Tolerance of what may be left unserved of floors.
SHORT = 1e-7


@dataclass(slots=True)
class Column:
    """A column of the program.

    Attributes:
        entries: (row, coefficient).
        worth: in the objective.
        most: its largest value.
        whole: it counts devices.
        relaxes: the limit of what floors lack, in linear programs only.
    """

    entries: list[tuple[int, float]]
    worth: float = 0.0
    most: float = INFINITE
    whole: bool = False
    relaxes: bool = False


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Device counts at their best use.

    Attributes:
        values: of the program's columns.
        value: in the objective: ``SERVED`` * ``served`` + accuracy's ``points``.
        served: a share of the weighted demand.
    """

    values: list[float]
    value: float
    served: float

    @property
    def points(self) -> float:
        return self.value - SERVED * self.served


class Program:
    """Rows and columns. The objective is divided by the weighted demand, ``total``."""

    def __init__(self, options: GroupOptions):
        self.options = options
        applications = options.applications
        self.total = sum(a.weight * a.demand for a in applications)
        self.limits: list[float] = [float(len(group)) for group in options.groups]
        counted = self._row(0.0)
        #: the row of what is served and counts
        self.counted = counted
        #: by application: the row of its demand
        self.shares = [self._row(1.0) for _ in applications]
        self._floors = [self._row(-a.floor) if a.floor > 0 else None for a in applications]
        #: the row of what floors lack, weighted
        self._lacking = self._row(0.0)
        #: the first: what is served and counts
        self.columns = [Column([(counted, 1.0)], SERVED, 1.0)]
        for application, floor in zip(applications, self._floors, strict=True):
            if floor is not None:
                weight = application.weight * application.demand / self.total
                self.columns.append(Column([(floor, -1.0), (self._lacking, weight)], most=application.floor))
        self._relaxes = len(self.columns)
        self.columns.append(Column([(self._lacking, -1.0)], -FLOOR_PRICE, relaxes=True))
        self.dedicated: dict[tuple[int, int], int] = {}
        #: by application and group: (column, accuracy, share) of what dedicated devices serve
        self.points: dict[tuple[int, int], list[tuple[int, float, float]]] = {}
        #: by application: (column, accuracy) of what slices serve
        self.sliced: list[list[tuple[int, float]]] = [[] for _ in applications]
        #: with their rows
        self.cuts: dict[RoundingCut, int] = {}
        self._cuts_of: list[list[tuple[RoundingCut, int]]] = [[] for _ in applications]
        self.contents: list[tuple[int, SharedDevice]] = []
        #: by application: (column, accuracy, share) of contents' slices
        self._held: list[list[tuple[int, float, float]]] = [[] for _ in applications]
        self._known: dict[tuple, int] = {}
        #: by application and variant: the row of what slices supply
        self.supplies: dict[tuple[int, str], int] = {}
        for q, application in enumerate(applications):
            for variant in options.variants(application.id):
                row = self.supplies[q, variant.id] = self._row(0.0)
                self.sliced[q].append((len(self.columns), variant.accuracy))
                self._serve(q, variant.accuracy, 1.0, [(row, 1.0)])
            for g in range(len(options.groups)):
                self._add_dedicated(q, g)

    def _row(self, limit: float) -> int:
        self.limits.append(limit)
        return len(self.limits) - 1

    def _serve(self, q: int, accuracy: float, share: float, entries: list[tuple[int, float]]) -> None:
        """A column that serves ``share`` of the application's demand."""
        application, floor = self.options.applications[q], self._floors[q]
        weight = application.weight * application.demand / self.total * share
        served = [(self.shares[q], share), (self.counted, -weight)]
        served += [(floor, -share)] if floor is not None else []
        self.columns.append(Column([*entries, *served], weight * accuracy))

    def _add_dedicated(self, q: int, g: int) -> None:
        points = self.options.by_application[q].operating_points[g]
        if not points:
            return
        demand = self.options.applications[q].demand
        time, most = self._row(0.0), self._row(0.0)
        self.dedicated[q, g] = len(self.columns)
        devices = float(len(self.options.groups[g]))
        self.columns.append(Column([(g, 1.0), (time, -1.0), (most, -1.0)], most=devices, whole=True))
        served = self.points[q, g] = []
        for point in points:
            share = point.rate / demand
            served.append((len(self.columns), point.variant.accuracy, share))
            self._serve(q, point.variant.accuracy, share, [(time, 1.0), (most, share)])

    def count_served(self, most: float) -> None:
        """Count at most this share of the weighted demand as served.

        More than that only counts by its accuracy.
        """
        self.columns[0].most = most

    def add(self, devices: Iterable[SharedDevice]) -> int:
        """Add the contents that are no columns yet; returns how many."""
        before = len(self.contents)
        for device in devices:
            key = _key(device)
            if key not in self._known:
                self._known[key] = len(self.columns)
                self._add_content(device)
        return len(self.contents) - before

    def _add_content(self, device: SharedDevice) -> None:
        supplied: dict[int, float] = {}
        for q, slice_, _ in device.residents:
            share, row = self.share(q, slice_), self.supplies[q, slice_.variant.id]
            self._held[q].append((len(self.columns), slice_.variant.accuracy, share))
            supplied[row] = supplied.get(row, 0.0) - share
            for cut, row in self._cuts_of[q]:
                if cut.limits(q, slice_.variant.accuracy):
                    supplied[row] = supplied.get(row, 0.0) - cut.count(share)
        self.contents.append((len(self.columns), device))
        devices = float(len(self.options.groups[device.group]))
        self.columns.append(Column([(device.group, 1.0), *supplied.items()], most=devices, whole=True))

    def share(self, q: int, slice_: TimeSlice) -> float:
        """The share of its application's demand that a slice can serve."""
        return min(1.0, slice_.rate / self.options.applications[q].demand)

    def cut(self, cut: RoundingCut) -> list[tuple[int, float]]:
        """Add a valid inequality; returns its (column, coefficient)."""
        row = self.cuts[cut] = self._row(cut.limit)
        self._cuts_of[cut.q].append((cut, row))
        entries = [(column, 1.0) for column, accuracy in self.sliced[cut.q] if cut.limits(cut.q, accuracy)]
        for (q, g), points in self.points.items() if cut.dedicated else ():
            accurate = [(column, share) for column, accuracy, share in points if cut.limits(q, accuracy)]
            if accurate:
                most = min(1.0, max(share for _, share in accurate))
                entries += [*accurate, (self.dedicated[q, g], -cut.count(most))]
        held = [(column, share) for column, accuracy, share in self._held[cut.q] if accuracy >= cut.accuracy]
        counted = counts(np.array([share for _, share in held]), np.array(cut.by))
        entries += [(column, -float(count)) for (column, _), count in zip(held, counted, strict=True)]
        for column, part in entries:
            self.columns[column].entries.append((row, part))
        return entries

    def linear(self) -> LP:
        """Return the relaxation.

        Devices are limited by their groups' rows alone, so that their duals price them.
        """
        lp = LP(sense="maximize")
        lp.addRows([[]] * len(self.limits), [-INFINITE] * len(self.limits), self.limits)
        lp.addCols([list(c.entries) for c in self.columns], [c.worth for c in self.columns],
                   [0.0] * len(self.columns), [INFINITE if c.whole else c.most for c in self.columns])  # fmt: skip
        return lp

    def allow_short_floors(self, counts: DeviceCounts) -> None:
        """Let plans lack as much of all floors together as the counts do, weighted."""
        lp = self._of(counts)
        if solved(lp):
            self.limits[self._lacking] = lp.getPrimal()[self._relaxes] + SHORT

    def evaluated(self, counts: DeviceCounts) -> Evaluated | None:
        """Return the best use of the counts; None where floors lack more than they may.

        Their contents become columns.
        """
        lp = self._of(counts)
        lp.chgBound(self._relaxes, 0.0, 0.0)
        if not solved(lp):
            return None
        values = lp.getPrimal()
        return Evaluated(values, lp.getObjVal(), values[0])

    def _of(self, counts: DeviceCounts) -> LP:
        """The program of how the counts are used best."""
        self.add(counts.shared)
        whole = {column: 0.0 for column, one in enumerate(self.columns) if one.whole}
        for (q, g), column in self.dedicated.items():
            whole[column] = float(counts.dedicated[q, g])
        for device in counts.shared:
            whole[self._known[_key(device)]] += 1.0
        lp = self.linear()
        for column, one in enumerate(self.columns):
            if one.whole:
                lp.chgBound(column, whole[column], whole[column])
        lp.chgBound(0, 0.0, 1.0)
        return lp

    def model(self, contents: set[int]) -> tuple[Model, list]:
        """SCIP's model, and its variables in the columns' order.

        Args:
            contents: columns of those that it may use.
        """
        others = {column for column, _ in self.contents} - contents
        model = new_model()
        favour_speed(model)
        model.setParam("randomization/randomseedshift", SEED)
        model.setParam("limits/nodes", NODES)
        variables, rows = [], [[] for _ in self.limits]
        for i, column in enumerate(self.columns):
            most = 0.0 if column.relaxes or i in others else None if column.most >= INFINITE else column.most
            variable = model.addVar(f"c{i}", vtype="I" if column.whole else "C", lb=0, ub=most, obj=column.worth)
            variables.append(variable)
            for row, part in column.entries:
                rows[row].append(part * variable)
        for row, limit in zip(rows, self.limits, strict=True):
            if row:
                model.addCons(quicksum(row) <= limit)
        model.setMaximize()
        return model, variables

    def counts(self, values: Sequence[float]) -> DeviceCounts:
        """Device counts from values of the columns."""
        made = DeviceCounts(self.options)
        dedicated = np.zeros_like(made.dedicated)
        for (q, g), column in self.dedicated.items():
            dedicated[q, g] = round(values[column])
        shared = [device for column, device in self.contents for _ in range(round(values[column]))]
        made.set(dedicated, shared)
        return made


def solved(lp: LP) -> bool:
    """Whether the linear program has an optimum.

    Presolving sometimes reduces it to nothing and loses the solution; the primal simplex then restores it."""
    lp.solve()
    if not lp.isOptimal():
        lp.solve(dual=False)
    return bool(lp.isOptimal())


def _key(device: SharedDevice) -> tuple:
    return device.group, device.revisit_s, tuple(sorted((q, s.variant.id, s.rows) for q, s, _ in device.residents))
