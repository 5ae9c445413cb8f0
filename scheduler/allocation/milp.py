"""The MILP of `nereus`, over device counts: identical devices counted, and shared in time slices.

Integers: n[q,g], devices of group g dedicated to application q, and one count for each content that a shared device may
have (:mod:`.contents`). Continuous: x[q,g,m], the time of dedicated devices that goes to variant m, and y[q,m], the
share of the demand that variant m serves in slices.

    sum_q n + contents <= devices of g;  sum_m x <= n;  sum_m x * rate / demand <= n  (no device serves more than all);
    y[q,m] <= sum over contents of min(1, slice rate / demand);  all that is served of q <= 1, and >= its floor.

Maximised: weight * demand * (accuracy + :data:`~.group_options.SERVED`) of what is served, divided by the weighted
demand. Contents are far too many to list: those that may improve the relaxation are found by its duals (column
generation; Gilmore and Gomory 1961), whose optimum bounds every plan. SCIP then solves the MILP over them from the
search's plan. Where that leaves more than :data:`CERTIFIED`, contents of too high a reduced cost to be in any plan
beyond it are excluded, the others listed, and SCIP's bound over those holds for all plans (Baldacci et al. 2008).

Limits count rounds, steps and nodes, so that equal problems get equal plans on every machine; live, time is limited,
too (:attr:`~.problem.Problem.milp_s`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from pyscipopt import LP, Model, quicksum

from .contents import ContentSearch
from .device_counts import DeviceCounts, SharedDevice
from .group_options import SERVED, GroupOptions
from .problem import CERTIFIED
from .solver import Budget, favour_speed, new_model, time_ran_out

#: Part of the certified gap that listed contents must leave: rounding takes the rest.
LISTED = 0.9
#: Rounds of column generation.
ROUNDS = 40
#: Slices priced in all rounds; a model for which that allows fewer than so many rounds is too large.
PRICED = 40_000
LEAST_ROUNDS = 20
#: Most contents listed for the proof, and steps of the search for them.
MOST_LISTED = 1_500
LISTING_STEPS = 20_000
#: Parts of the reduced costs in question up to which contents are listed, one after another.
LISTED_PARTS = (0.02, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0)
#: Nodes of SCIP's tree.
NODES = 400
#: Seed of SCIP's choices among equals.
SEED = 1
_INFINITE = 1e20


@dataclass(frozen=True, eq=False)
class MilpPlan:
    """``counts``: at least as good as the start. ``bound``: weighted items/s times (accuracy + SERVED) of any plan that
    keeps the floors which the start keeps."""

    counts: DeviceCounts
    bound: float


@dataclass(frozen=True, slots=True)
class _Column:
    """``worth``: in the objective, of which ``points`` by accuracy. ``most``: largest number of devices; None: not
    counted in whole devices."""

    entries: tuple[tuple[int, float], ...]
    worth: float = 0.0
    points: float = 0.0
    most: float | None = None


class _Program:
    """Rows and columns, from which the linear program and SCIP's model are both made."""

    def __init__(self, options: GroupOptions):
        self.options = options
        applications = options.applications
        self.total = sum(a.weight * a.demand for a in applications)
        self.limits: list[float] = [float(len(group)) for group in options.groups]
        self._served = [self._row(1.0) for _ in applications]
        self._floors = [self._row(-a.floor) if a.floor > 0 else None for a in applications]
        self.columns: list[_Column] = []
        self.dedicated: dict[tuple[int, int], int] = {}
        self.contents: list[tuple[int, SharedDevice]] = []
        #: by application and variant: the row of what slices supply
        self.supplies: dict[tuple[int, str], int] = {}
        for q, application in enumerate(applications):
            for variant in options.variants(application.id):
                row = self.supplies[q, variant.id] = self._row(0.0)
                self._serve(q, variant.accuracy, 1.0, [(row, 1.0)])
            for g in range(len(options.groups)):
                self._add_dedicated(q, g)

    def _row(self, limit: float) -> int:
        self.limits.append(limit)
        return len(self.limits) - 1

    def _serve(self, q: int, accuracy: float, share: float, entries: list[tuple[int, float]]) -> None:
        """A column that serves ``share`` of the application's demand."""
        application, floor = self.options.applications[q], self._floors[q]
        served = [(self._served[q], share)] + ([(floor, -share)] if floor is not None else [])
        weight = application.weight * application.demand / self.total * share
        self.columns.append(_Column((*entries, *served), weight * (accuracy + SERVED), weight * accuracy))

    def _add_dedicated(self, q: int, g: int) -> None:
        points = self.options.by_application[q].operating_points[g]
        if not points:
            return
        demand = self.options.applications[q].demand
        time, most = self._row(0.0), self._row(0.0)
        self.dedicated[q, g] = len(self.columns)
        devices = float(len(self.options.groups[g]))
        self.columns.append(_Column(((g, 1.0), (time, -1.0), (most, -1.0)), most=devices))
        for point in points:
            share = point.rate / demand
            self._serve(q, point.variant.accuracy, share, [(time, 1.0), (most, share)])

    def content(self, device: SharedDevice) -> _Column:
        """Add the content to the columns."""
        supplied: dict[int, float] = {}
        for q, slice_, _ in device.residents:
            row = self.supplies[q, slice_.variant.id]
            supplied[row] = supplied.get(row, 0.0) - min(1.0, slice_.rate / self.options.applications[q].demand)
        self.contents.append((len(self.columns), device))
        devices = float(len(self.options.groups[device.group]))
        column = _Column(((device.group, 1.0), *supplied.items()), most=devices)
        self.columns.append(column)
        return column

    def linear(self) -> LP:
        """The relaxation."""
        lp = LP(sense="maximize")
        lp.addRows([[]] * len(self.limits), [-_INFINITE] * len(self.limits), self.limits)
        count = len(self.columns)
        lp.addCols([list(c.entries) for c in self.columns], [c.worth for c in self.columns],
                   [0.0] * count, [_INFINITE] * count)  # fmt: skip
        return lp

    def model(self) -> tuple[Model, list]:
        """SCIP's model, and its variables in the columns' order."""
        model = new_model()
        favour_speed(model)
        model.setParam("randomization/randomseedshift", SEED)
        model.setParam("limits/nodes", NODES)
        variables, rows = [], [[] for _ in self.limits]
        for i, column in enumerate(self.columns):
            kind = "C" if column.most is None else "I"
            variable = model.addVar(f"c{i}", vtype=kind, lb=0, ub=column.most, obj=column.worth)
            variables.append(variable)
            for row, part in column.entries:
                rows[row].append(part * variable)
        for row, limit in zip(rows, self.limits, strict=True):
            if row:
                model.addCons(quicksum(row) <= limit)
        model.setMaximize()
        return model, variables

    def whole(self, counts: DeviceCounts) -> dict[int, float]:
        """The counts as values of the integer columns; its shared devices' contents become columns."""
        values = {column: 0.0 for column in self.dedicated.values()}
        for (q, g), column in self.dedicated.items():
            values[column] = float(counts.dedicated[q, g])
        self.add_missing(counts.shared)
        known = {_key(device): column for column, device in self.contents}
        for device in counts.shared:
            values[known[_key(device)]] = values.get(known[_key(device)], 0.0) + 1.0
        return values

    def add_missing(self, devices: Iterable[SharedDevice]) -> None:
        """Add the contents that are no columns yet."""
        known = {_key(device) for _, device in self.contents}
        for device in devices:
            if _key(device) not in known:
                known.add(_key(device))
                self.content(device)

    def counts(self, values: Sequence[float]) -> DeviceCounts:
        """Device counts from values of the columns."""
        made = DeviceCounts(self.options)
        dedicated = np.zeros_like(made.dedicated)
        for (q, g), column in self.dedicated.items():
            dedicated[q, g] = round(values[column])
        shared = [device for column, device in self.contents for _ in range(round(values[column]))]
        made.set(dedicated, shared)
        return made


def _key(device: SharedDevice) -> tuple:
    return device.group, device.revisit_s, tuple(sorted((q, s.variant.id, s.rows) for q, s, _ in device.residents))


@dataclass(frozen=True, eq=False)
class _Evaluated:
    """``values`` of all columns for given counts, their ``value`` in the objective, and ``points`` of it."""

    values: list[float]
    value: float
    points: float


def _evaluated(program: _Program, counts: DeviceCounts) -> _Evaluated | None:
    """The best use of the counts: the linear program with its integers fixed; None where a floor is not served."""
    whole = program.whole(counts)
    lp = program.linear()
    for column in [*program.dedicated.values(), *(column for column, _ in program.contents)]:
        lp.chgBound(column, whole.get(column, 0.0), whole.get(column, 0.0))
    lp.solve()
    if not lp.isOptimal():
        lp.solve(dual=False)
    if not lp.isOptimal():
        return None
    values = lp.getPrimal()
    points = sum(v * column.points for v, column in zip(values, program.columns, strict=True))
    return _Evaluated(values, lp.getObjVal(), points)


class _Relaxed:
    """The relaxation over the contents found so far, and the best bound for every plan."""

    def __init__(self, program: _Program, periods: Sequence[float]):
        self._program = program
        options = program.options
        self._sizes = np.array([len(group) for group in options.groups], dtype=float)
        self._searches: list[tuple[int, ContentSearch, np.ndarray, np.ndarray]] = []
        demand = [a.demand for a in options.applications]
        for g, group in enumerate(options.groups):
            for revisit_s in periods if group.one.max_resident != 1 else ():
                table = options.slices(g, revisit_s)
                if not table.slices:
                    continue
                owners = table.owner.tolist()
                rows = [program.supplies[q, s.variant.id] for q, s in zip(owners, table.slices, strict=True)]
                shares = [min(1.0, s.rate / demand[q]) for q, s in zip(owners, table.slices, strict=True)]
                search = ContentSearch(g, revisit_s, table, group.one.max_resident)
                self._searches.append((g, search, np.array(rows), np.array(shares)))
        sizes = sum(len(rows) for _, _, rows, _ in self._searches)
        self.rounds = ROUNDS if sizes == 0 else min(ROUNDS, PRICED // sizes)
        self.bound = float("inf")
        self._duals = np.zeros(0)

    def generate(self, close: float, budget: Budget) -> None:
        """Add contents that may improve the relaxation until its bound is as tight as its optimum to ``close``."""
        program = self._program
        lp = program.linear()
        for _ in range(self.rounds):
            lp.solve()
            if not lp.isOptimal():
                lp.solve(dual=False)
            value, duals = lp.getObjVal(), np.array(lp.getDual())
            over, columns = self._price(duals)
            bound = value + float(self._sizes @ over)
            if bound < self.bound:
                self.bound, self._duals = bound, duals
            if not columns or self.bound - value <= close:
                return
            if budget.left() <= 0:
                time_ran_out()
                return
            lp.addCols([list(c.entries) for c in columns], [0.0] * len(columns), [0.0] * len(columns),
                       [_INFINITE] * len(columns))  # fmt: skip

    def _price(self, duals: np.ndarray) -> tuple[np.ndarray, list[_Column]]:
        """By group, the most that a content earns beyond a device's price; and columns of contents that do."""
        over, columns = np.zeros(len(self._sizes)), []
        for g, search, rows, shares in self._searches:
            price = float(duals[g])
            least = price + 1e-9 * max(1.0, abs(price))
            found = search.best(duals[rows] * shares, least)
            over[g] = max(over[g], found.bound - price)
            if found.chosen:
                columns.append(self._program.content(search.device(found.chosen)))
        return over, columns

    def list_all(self, slack: float) -> float:
        """Add all contents whose reduced cost is at most ``slack``, or as large a part of it as can be listed.

        Returns what every plan with a content that is not among the columns is worth at most."""
        reached = 0.0
        for part in LISTED_PARTS:
            contents = self._listed(slack * part)
            if contents is None:
                break
            self._program.add_missing(contents)
            reached = slack * part
        return self.bound - reached

    def _listed(self, slack: float) -> list[SharedDevice] | None:
        contents: list[SharedDevice] = []
        for g, search, rows, shares in self._searches:
            least = float(self._duals[g]) - slack
            listed = search.above(self._duals[rows] * shares, least, MOST_LISTED - len(contents), LISTING_STEPS)
            if listed is None:
                return None
            contents += [search.device(chosen) for chosen in listed]
        return contents


def _solved(program: _Program, start: DeviceCounts, gap: float, budget: Budget) -> tuple[DeviceCounts, float]:
    """SCIP's plan over the program's contents, no worse than ``start``, and its bound for plans of these."""
    evaluated = _evaluated(program, start)
    if evaluated is None:
        return start, float("inf")
    model, variables = program.model()
    model.setParam("limits/time", min(max(budget.left(), 0.01), _INFINITE))
    model.setParam("limits/absgap", max(gap * evaluated.points, 0.0))
    solution = model.createSol()
    for variable, value in zip(variables, evaluated.values, strict=True):
        model.setSolVal(solution, variable, value)
    # The model may reject it because of rounding; the solve then starts without one.
    model.addSol(solution)
    # Without the interpreter's lock, so that other threads of the process go on.
    model.optimizeNogil()
    if model.getStatus() == "timelimit":
        time_ran_out()
    bound = max(model.getDualbound(), evaluated.value)
    if model.getNSols() == 0:
        return start, bound
    best = model.getBestSol()
    found = program.counts([model.getSolVal(best, variable) for variable in variables])
    return (found, bound) if found.value > start.value else (start, bound)


def improve(start: DeviceCounts, periods: Sequence[float], gap: float, seconds: float | None) -> MilpPlan | None:
    """The MILP's plan from ``start``; None where that leaves a floor unserved, or the model would be too large.

    Args:
        periods: revisit periods that shared devices may have, seconds.
        gap: relative gap of the points at which SCIP stops.
        seconds: time limit; None: none but those of rounds, steps and nodes.
    """
    budget = Budget(math.inf if seconds is None else seconds)
    program = _Program(start.options)
    first = _evaluated(program, start)
    relaxation = _Relaxed(program, periods)
    if first is None or relaxation.rounds < LEAST_ROUNDS:
        return None
    relaxation.generate(gap * first.points, budget)
    bound = relaxation.bound
    if bound - first.value <= gap * first.points:
        return MilpPlan(start, bound * program.total)
    plan, _ = _solved(program, start, gap, budget)
    reached = _evaluated(program, plan) or first
    target = reached.value + CERTIFIED * LISTED * reached.points
    if bound > target and budget.left() > 0:
        found = len(program.contents)
        others = relaxation.list_all(bound - target)
        if others < bound or len(program.contents) > found:
            plan, listed = _solved(program, plan, gap, budget)
            bound = min(bound, max(others, listed))
    return MilpPlan(plan, bound * program.total)
