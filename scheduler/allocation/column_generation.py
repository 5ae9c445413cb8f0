"""Column generation for the relaxation of the MILP of `nereus`.

The relaxation is over all contents that devices can hold, which are far too many to list. Those that may improve it are
found by its duals (Gilmore and Gomory 1961; the search, :mod:`.contents`, bounds what it cuts off), and where none
does, its optimum bounds every plan.

Branches limit how often devices of a group have a *feature*: a revisit period, an application, a variant, or a slice in
a revisit period. Each is a row whose dual is part of the prices, so that contents are found in every branch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .contents import ContentSearch, ContentSearches
from .device_counts import SharedDevice
from .group_options import SERVED, SliceTable
from .milp_program import INFINITE, Program, solved
from .problem import CandidateVariant
from .rounding_cuts import RoundingCut, Served, counts, violated
from .solver import Budget, time_ran_out

#: Rounds of pricing in one branch.
ROUNDS = 60
#: Rows times columns of a linear program that take as long to solve as a slice to price.
SOLVED = 200
#: Slices that take as long to price as all else of a round (1 ms), so that work ends where there are none.
AROUND = 100
#: Points between the relaxation's value and its bound at which it is as good as solved.
CLOSE = 3e-2
#: Least reduced cost of a content that becomes a column.
LEAST = 1e-7
#: Tolerance of whole numbers.
WHOLE = 1e-6
#: Points for each device by which a branch's rows are violated: more than any plan is worth.
VIOLATED = 3 * SERVED

#: What devices may have: ("period", search), ("application", group, application), ("variant", group, application, id),
#: ("slice", search, slice), or ("dedicated", group, application).
Feature = tuple
#: By feature, how many devices have it, at least and at most.
Branch = Mapping[Feature, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Row:
    """A feature's row, and what has the feature: a search's contents, or slices.

    Attributes:
        row: its number in the linear program.
        search: index; None: the feature is of slices.
        slices: indices, of all searches' slices.
    """

    row: int
    search: int | None
    slices: np.ndarray


class Relaxed:
    """The relaxation over the contents found so far.

    Attributes:
        work: slices that may still be priced; below 0 bounds are no longer improved.
        searches: of contents, by group and revisit period.
        values: of the columns here, where a bound was last sought.
    """

    def __init__(self, program: Program, periods: Sequence[float], work: int):
        self.program, self.work = program, work
        options = program.options
        self._sizes = np.array([len(group) for group in options.groups], dtype=float)
        self.searches: list[ContentSearch] = []
        demand = [a.demand for a in options.applications]
        shares: list[float] = []
        slices: list[tuple[int, CandidateVariant, int]] = []
        for g, group in enumerate(options.groups):
            for revisit_s in periods if group.one.max_resident != 1 else ():
                table = options.slices(g, revisit_s)
                if not table.slices:
                    continue
                owners = table.owner.tolist()
                all_shares = np.array([min(1.0, s.rate / demand[q]) for q, s in zip(owners, table.slices, strict=True)])
                search = ContentSearch(g, revisit_s, table, group.one.max_resident, _useful(table, all_shares))
                self.searches.append(search)
                kept = search.slices.tolist()
                shares += all_shares[kept].tolist()
                slices += [(owners[j], table.slices[j].variant, table.slices[j].rows) for j in kept]
        self.contents = ContentSearches(self.searches) if self.searches else None
        self._groups = np.array([search.g for search in self.searches], dtype=int)
        #: of all searches' slices, one search after the other
        self._slices = slices
        self._shares = np.array(shares)
        self._supplies = np.array([program.supplies[q, variant.id] for q, variant, _ in slices], dtype=int)
        self._accuracy = np.array([variant.accuracy for _, variant, _ in slices])
        self._owner = np.array([q for q, _, _ in slices], dtype=int)
        self._of = np.repeat(np.arange(len(self.searches)), [len(search.slices) for search in self.searches])
        #: what slices count in each cut (cut x slice)
        self._counted = np.zeros((0, len(slices)))
        self._rows: dict[Feature, _Row] = {}
        self._lp = program.linear()
        self._base = len(program.columns)
        #: by row of the program: its row here
        self._row_at = list(range(len(program.limits)))
        #: by content: its column here, and its features
        self._at: list[int] = [column for column, _ in program.contents]
        self._features: list[frozenset[Feature]] = [self._features_of(device) for _, device in program.contents]
        self.values: list[float] = []

    def count_served(self, most: float) -> None:
        """See :meth:`.Program.count_served`."""
        self.program.count_served(most)
        self._lp.chgBound(0, 0.0, most)

    def add(self, devices: Sequence[SharedDevice]) -> int:
        """Add the contents that are no columns yet; returns how many."""
        self.program.add(devices)
        return self._add_found()

    def _add_found(self) -> int:
        """Add the program's contents that are no columns here yet; returns how many."""
        new = self.program.contents[len(self._at) :]
        for column, device in new:
            features = self._features_of(device)
            entries = [(self._row_at[row], part) for row, part in self.program.columns[column].entries]
            entries += [(row.row, 1.0) for feature, row in self._rows.items() if feature in features]
            self._at.append(self._lp.ncols())
            self._features.append(features)
            self._lp.addCol(entries, 0.0, 0.0, INFINITE)
        return len(new)

    def _features_of(self, device: SharedDevice) -> frozenset[Feature]:
        found: set[Feature] = set()
        for k, search in enumerate(self.searches):
            if (search.g, search.revisit_s) == (device.group, device.revisit_s):
                found.add(("period", k))
                break
        for q, slice_, _ in device.residents:
            found.add(("application", device.group, q))
            found.add(("variant", device.group, q, slice_.variant.id))
            found.add(("slice", k, q, slice_.variant.id, slice_.rows))
        return frozenset(found)

    # --- cuts --------------------------------------------------------------------------------------------------------

    def tighten(self) -> int:
        """Add the cuts that ``values`` violate; returns how many."""
        program, values = self.program, self.values
        slices: list[dict[tuple[float, float], float]] = [{} for _ in program.shares]
        for at, (_, device) in zip(self._at, program.contents, strict=True):
            if values[at] > WHOLE:
                for q, slice_, _ in device.residents:
                    key = slice_.variant.accuracy, program.share(q, slice_)
                    slices[q][key] = slices[q].get(key, 0.0) + values[at]
        cuts: list[RoundingCut] = []
        for q, mine in enumerate(slices):
            if mine:
                by_slices = [(accuracy, values[column]) for column, accuracy in program.sliced[q]]
                by_devices = [
                    (values[program.dedicated[q, g]], [(a, s, s * values[c]) for c, a, s in points])
                    for (owner, g), points in program.points.items()
                    if owner == q
                ]
                found = violated(q, Served(mine, by_slices, by_devices))
                # A cut may stay violated by the linear program's tolerance.
                cuts += [cut for cut in found if cut not in program.cuts]
        at = {column: at for at, (column, _) in zip(self._at, program.contents, strict=True)}
        for cut in cuts:
            self._cut(cut, at)
        return len(cuts)

    def _cut(self, cut: RoundingCut, at: Mapping[int, int]) -> None:
        entries = [(at.get(column, column), part) for column, part in self.program.cut(cut)]
        self._row_at.append(self._lp.nrows())
        self._lp.addRow(entries, -INFINITE, cut.limit)
        mine = np.nonzero((self._owner == cut.q) & (self._accuracy >= cut.accuracy))[0]
        counted = np.zeros((1, len(self._slices)))
        counted[0, mine] = counts(self._shares[mine], np.array(cut.by))
        self._counted = np.concatenate((self._counted, counted))

    def _gains(self, duals: np.ndarray) -> np.ndarray:
        """What all searches' slices gain."""
        cuts = duals[self._row_at[len(self._row_at) - len(self.program.cuts) :]]
        return duals[self._supplies] * self._shares + cuts @ self._counted

    # --- branches ----------------------------------------------------------------------------------------------------

    def require(self, feature: Feature) -> None:
        """Have a row for the feature."""
        if feature in self._rows or feature[0] == "dedicated":
            return
        entries = [(at, 1.0) for at, features in zip(self._at, self._features, strict=True) if feature in features]
        row = self._lp.nrows()
        self._lp.addRow(entries, -INFINITE, INFINITE)
        # Branches that nothing found so far satisfies have an optimum, too.
        self._lp.addCol([(row, 1.0)], -VIOLATED, 0.0, INFINITE)
        search = feature[1] if feature[0] == "period" else None
        self._rows[feature] = _Row(row, search, self._slices_with(feature))

    def _slices_with(self, feature: Feature) -> np.ndarray:
        kind = feature[0]
        if kind == "period":
            return np.zeros(0, dtype=int)
        mine = (self._of if kind == "slice" else self._groups[self._of]) == feature[1]
        mine &= self._owner == feature[2]
        named = feature[3:]
        return np.array(
            [j for j in np.nonzero(mine)[0] if (self._slices[j][1].id, self._slices[j][2])[: len(named)] == named],
            dtype=int,
        )

    def enter(self, branch: Branch) -> None:
        """Limit devices as the branch does, and in no other way."""
        for feature, row in self._rows.items():
            self._lp.chgSide(row.row, *branch.get(feature, (-INFINITE, INFINITE)))
        for (q, g), column in self.program.dedicated.items():
            low, high = branch.get(("dedicated", g, q), (0.0, INFINITE))
            self._lp.chgBound(column, low, high)

    def value(self, branch: Branch) -> float:
        """The relaxation's value in the branch over the contents found so far: no bound."""
        self.enter(branch)
        return self._lp.getObjVal() if self._solved() else -math.inf

    def _solved(self) -> bool:
        self.work -= AROUND + self._lp.nrows() * self._lp.ncols() // SOLVED
        return solved(self._lp)

    def promising(self, most: int) -> set[int]:
        """Return columns of the program: the ``most`` contents of least reduced cost."""
        self._add_found()
        self.enter({})
        if not solved(self._lp):
            return {column for column, _ in self.program.contents}
        costs = np.abs(np.array(self._lp.getRedcost())[self._at])
        return {self.program.contents[i][0] for i in np.argsort(costs, kind="stable")[:most]}

    def bound(self, branch: Branch, enough: float, budget: Budget) -> float:
        """Return a bound that no plan of the branch exceeds.

        The search for it stops at ``enough``. It leaves the columns' values in ``values``.
        """
        self._add_found()
        self.enter(branch)
        bound = math.inf
        for _ in range(ROUNDS):
            if not self._solved():
                break
            value, primal = self._lp.getObjVal(), self._lp.getPrimal()
            over, added = self._price(branch)
            bound = min(bound, value + float(self._sizes @ over))
            if bound <= enough < math.inf or self.work <= 0:
                break
            if not added or bound - value <= CLOSE:
                self.values = primal + [0.0] * added
                if not self.tighten():
                    break
            if budget.left() <= 0:
                time_ran_out()
                break
        if solved(self._lp):
            self.values = self._lp.getPrimal()
        return bound

    def _price(self, branch: Branch) -> tuple[np.ndarray, int]:
        """Price contents, and add those that earn more than their device costs.

        Returns:
            By group, the most that a content earns beyond a device's price; and how many contents that do are new.
        """
        over = np.zeros(len(self._sizes))
        if self.contents is None:
            return over, 0
        duals = np.array(self._lp.getDual())
        gains, prices = self._gains(duals), duals[self._groups]
        for feature, row in self._rows.items():
            dual = np.inf if branch.get(feature, (0.0, INFINITE))[1] <= 0 else float(duals[row.row])
            if row.search is None:
                gains[row.slices] -= dual
            else:
                prices[row.search] += dual
        least = prices + LEAST * np.maximum(1.0, np.abs(prices))
        fluid = self.contents.fluid(gains)
        which = np.nonzero(fluid > least)[0]
        np.maximum.at(over, self._groups, np.nan_to_num(np.minimum(fluid, least) - prices, nan=0.0))
        found = []
        for k, best in zip(which.tolist(), self.contents.best(gains, least, which), strict=True):
            search = self.searches[k]
            self.work -= len(search.slices)
            over[search.g] = max(over[search.g], best.bound - float(prices[k]))
            if best.chosen:
                found.append(search.device(best.chosen))
        return over, self.add(found)

    def counted(self) -> dict[Feature, float]:
        """Number of devices with each feature, at ``values``; none: left out."""
        counts: dict[Feature, float] = {}
        for at, features in zip(self._at, self._features, strict=True):
            if self.values[at] > 1e-9:
                for feature in features:
                    counts[feature] = counts.get(feature, 0.0) + self.values[at]
        for (q, g), column in self.program.dedicated.items():
            if self.values[column] > 1e-9:
                counts["dedicated", g, q] = self.values[column]
        return counts

    def divided(self) -> list[int]:
        """Columns of the program that are no whole numbers at ``values``."""
        values = self.of_columns()
        return [i for i, c in enumerate(self.program.columns) if c.whole and abs(values[i] - round(values[i])) > WHOLE]

    def of_columns(self) -> list[float]:
        """``values`` in the order of the program's columns."""
        values = list(self.values[: self._base])
        return values + [self.values[at] for at in self._at[len(self._at) - (len(self.program.columns) - self._base) :]]


def _useful(table: SliceTable, shares: np.ndarray) -> list[int]:
    """Return the slices that no other of their application dominates.

    At this demand, another one dominates a slice if it is no slower, no larger, no less accurate and supplies no less.

    Returns:
        Indices into the table's slices.
    """
    useful: list[int] = []
    accuracy = np.array([slice_.variant.accuracy for slice_ in table.slices])
    for q in sorted(set(table.owner.tolist())):
        mine: list[int] = []
        for j in sorted(
            np.nonzero(table.owner == q)[0].tolist(),
            key=lambda j: (table.seconds[j], -accuracy[j], -shares[j], table.memory[j]),
        ):
            rivals = np.array(mine, dtype=int)
            if not (
                (accuracy[rivals] >= accuracy[j])
                & (shares[rivals] >= shares[j])
                & (table.memory[rivals] <= table.memory[j])
            ).any():
                mine.append(j)
        useful += sorted(mine)
    return useful
