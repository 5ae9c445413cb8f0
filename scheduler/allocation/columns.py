"""The MILP of `nereus` over device counts: columns, bounds, and SCIP.

Integers: n[q,g], devices of group g dedicated to application q, and one count for each content that a shared device may
have (:mod:`.contents`). Continuous: x[q,g,m], the time of dedicated devices that goes to variant m, y[q,m], the share
of the demand that variant m serves in slices, and s, the share of the weighted demand that is served.

    sum_q n + contents <= devices of g;  sum_m x <= n;  sum_m x * rate / demand <= n  (no device serves more than all);
    y[q,m] <= sum over contents of min(1, slice rate / demand);  all that is served of q <= 1;
    as much of each floor is served as the start serves of it.

Maximised: :data:`~.group_options.SERVED` * s + the weighted accuracy of what is served. Contents are far too many to
list. Those that may improve the relaxation are found by its duals (Gilmore and Gomory 1961); where none does, its
optimum bounds every plan. Rows without a limit count the devices of a group that host an application: bounds split
plans there.

Limits count work and nodes, so that equal problems get equal plans on every machine; live, time is limited, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from pyscipopt import LP, SCIP_PARAMSETTING, quicksum

from .contents import ContentSearch, ContentSearches
from .device_counts import DeviceCounts, SharedDevice
from .group_options import SERVED, GroupOptions, SliceTable
from .solver import Budget, maximise, new_model, solved, time_ran_out

#: Nodes of SCIP's tree, and nodes without a better solution after which it ends.
NODES, STALL_NODES = 400, 50
#: Most contents in SCIP's model besides its start's.
IN_SCIP = 100
#: Relative gap of the points at which SCIP stops.
SCIP_GAP = 2e-4
#: Seed of SCIP's choices among equals, and of what is drawn.
SEED = 1
#: Largest share of a demand that a device can serve: the solvers round beyond it.
LARGEST_SHARE = 1e4
#: Bounds beyond which the solvers know none.
INFINITE = 1e20
#: Tolerance of what is served of floors, as a share of the demand.
SHORT = 1e-7
#: Rounds of pricing, and slices priced in all of them (about 0.4 s of work).
ROUNDS, PRICED = 60, 60_000
#: Rows times columns of a linear program that take as long to solve as a slice to price.
SOLVED = 200
#: Slices that take as long to price as all else of a round (1 ms), so that work ends where there are none.
AROUND = 100
#: Points between the relaxation's value and its bound at which it is as good as solved.
CLOSE = 3e-2
#: Points for each weighted item served in bounds of accuracy: at so many, nothing is left out for its sake.
FIRST = 1e4
#: Parts into which plans are split at most for a bound.
PARTS = 8
#: Part of a device from which a content is in use.
IN_USE = 1e-3
#: Distance from a whole number of hosts from which plans are split there.
NEAR = 1e-4
#: Least reduced cost of a content that becomes a column.
LEAST = 1e-7


@dataclass(slots=True)
class Column:
    """With ``whole``, it counts devices; entries are (row, coefficient)."""

    entries: list[tuple[int, float]]
    worth: float = 0.0
    most: float = INFINITE
    whole: bool = False


@dataclass(frozen=True, eq=False)
class Evaluated:
    """``values`` of the columns at the best use of some counts, and the objective."""

    values: list[float]
    value: float

    @property
    def points(self) -> float:
        return self.value - SERVED * self.values[0]


class Program:
    """Rows and columns. The objective is divided by the weighted demand, ``total``.

    Args:
        periods: revisit periods that shared devices may have, seconds.

    Attributes:
        searches: of contents, by group and revisit period.
        values: of the columns in the relaxation, once it was solved.
    """

    def __init__(self, options: GroupOptions, periods: Sequence[float]):
        self.options = options
        applications = options.applications
        self.total = sum(a.weight * a.demand for a in applications)
        self.limits: list[float] = [float(len(group)) for group in options.groups]
        self._counted = self._row(0.0)
        #: by application: the row of its demand
        self._shares = [self._row(1.0) for _ in applications]
        self._floors = [self._row(-a.floor) if a.floor > 0 else None for a in applications]
        #: the first: what is served
        self.columns = [Column([(self._counted, 1.0)], SERVED, 1.0)]
        self.values: list[float] = []
        self.dedicated: dict[tuple[int, int], int] = {}
        self.contents: list[tuple[int, SharedDevice]] = []
        self._known: dict[tuple, int] = {}
        #: contents that a relaxation uses
        self._in_use: set[int] = set()
        #: by application and variant: the row of what slices supply
        self._supplies: dict[tuple[int, str], int] = {}
        #: by application and group: the row of the devices that host it
        self._hosts: dict[tuple[int, int], int] = {}
        for q, application in enumerate(applications):
            for variant in options.variants(application.id):
                row = self._supplies[q, variant.id] = self._row(0.0)
                self._serve(q, variant.accuracy, 1.0, [(row, 1.0)])
            for g in range(len(options.groups)):
                self._hosts[q, g] = self._row(INFINITE)
                self._add_dedicated(q, g)
        #: that bounds of parts without any plan are finite, too
        self._more_devices = [len(self.columns) + g for g in range(len(options.groups))]
        self.columns += [Column([(g, -1.0)], -2.0 * FIRST, 0.0) for g in range(len(options.groups))]
        self._weights = [a.weight * a.demand / self.total for a in applications]
        self._set_up_searches(periods)

    def _row(self, limit: float) -> int:
        self.limits.append(limit)
        return len(self.limits) - 1

    def _serve(self, q: int, accuracy: float, share: float, entries: list[tuple[int, float]]) -> None:
        application, floor = self.options.applications[q], self._floors[q]
        weight = application.weight * application.demand / self.total * share
        served = [(self._shares[q], share), (self._counted, -weight)]
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
        entries = [(g, 1.0), (self._hosts[q, g], 1.0), (time, -1.0), (most, -1.0)]
        self.columns.append(Column(entries, most=devices, whole=True))
        for point in points:
            share = min(point.rate / demand, LARGEST_SHARE)
            self._serve(q, point.variant.accuracy, share, [(time, 1.0), (most, share)])

    def _set_up_searches(self, periods: Sequence[float]) -> None:
        self.searches: list[ContentSearch] = []
        shares: list[float] = []
        supplies: list[int] = []
        hosts: list[int] = []
        for g, group in enumerate(self.options.groups):
            for revisit_s in periods if group.one.max_resident != 1 else ():
                table = self.options.slices(g, revisit_s)
                if not table.slices:
                    continue
                owners = table.owner.tolist()
                all_shares = np.array([self._share(q, s.rate) for q, s in zip(owners, table.slices, strict=True)])
                search = ContentSearch(g, revisit_s, table, group.one.max_resident, _useful(table, all_shares))
                self.searches.append(search)
                kept = search.slices.tolist()
                shares += all_shares[kept].tolist()
                supplies += [self._supplies[owners[j], table.slices[j].variant.id] for j in kept]
                hosts += [self._hosts[owners[j], g] for j in kept]
        self.together = ContentSearches(self.searches) if self.searches else None
        self._groups = np.array([search.g for search in self.searches], dtype=int)
        #: of all searches' slices, one search after the other: shares of the demand, rows of what they supply, of hosts
        self._slice_shares = np.array(shares)
        self._slice_rows, self._slice_hosts = np.array(supplies, dtype=int), np.array(hosts, dtype=int)

    def _share(self, q: int, rate: float) -> float:
        return min(1.0, rate / self.options.applications[q].demand)

    def add(self, devices: Iterable[SharedDevice]) -> list[Column]:
        before = len(self.columns)
        for device in devices:
            key = _key(device)
            if key in self._known:
                continue
            self._known[key] = len(self.columns)
            g, entries = device.group, [(device.group, 1.0)]
            for q, slice_, _ in device.residents:
                entries.append((self._supplies[q, slice_.variant.id], -self._share(q, slice_.rate)))
                entries.append((self._hosts[q, g], 1.0))
            self.contents.append((len(self.columns), device))
            self.columns.append(Column(entries, most=float(len(self.options.groups[g])), whole=True))
        return self.columns[before:]

    # --- counts at their best use -----------------------------------------------------------------------------------

    def evaluated(self, counts: DeviceCounts, start: bool = False) -> Evaluated | None:
        """None: the best use of the counts serves less of floors than the start, for which ``start`` is set."""
        floors = [(-a.floor, row) for a, row in zip(self.options.applications, self._floors, strict=True) if row]
        for _, row in floors if start else ():
            self.limits[row] = 0.0
        lp = self._using(counts)
        if not solved(lp):
            return None
        activity = lp.getActivity()
        for all_of_it, row in floors if start else ():
            self.limits[row] = max(all_of_it, activity[row]) + SHORT
        return Evaluated(lp.getPrimal(), lp.getObjVal())

    def _using(self, counts: DeviceCounts) -> LP:
        self.add(counts.shared)
        whole = {column: float(counts.dedicated[use]) for use, column in self.dedicated.items()}
        whole |= {column: 0.0 for column, _ in self.contents}
        for device in counts.shared:
            whole[self._known[_key(device)]] += 1.0
        lp = self._linear()
        for column, count in whole.items():
            lp.chgBound(column, count, count)
        return lp

    def _linear(self) -> LP:
        """Devices are limited by their groups' rows alone, so that their duals price them."""
        lp = LP(sense="maximize")
        lp.addRows([[]] * len(self.limits), [-INFINITE] * len(self.limits), self.limits)
        lp.addCols([list(c.entries) for c in self.columns], [c.worth for c in self.columns],
                   [0.0] * len(self.columns), [INFINITE if c.whole else c.most for c in self.columns])  # fmt: skip
        return lp

    # --- the relaxation ----------------------------------------------------------------------------------------------

    def bound(
        self, enough: float, budget: Budget, worth: float = SERVED, counted: float = 1.0, certified: float = math.inf
    ) -> float:
        """Return a bound that no plan exceeds; the search for it stops at ``enough``.

        It adds the columns that may improve the relaxation.

        Args:
            worth: points for each weighted item served.
            counted: no larger share of the weighted demand counts as served; more only counts by its accuracy.
            certified: a bound above it is tightened. Plans are split by how many devices of a group host an
                application, into at most :data:`PARTS`, and the bound is the highest of theirs.
        """
        lp = self._linear()
        lp.chgObj(0, worth)
        lp.chgBound(0, 0.0, counted)
        for column in self._more_devices:
            lp.chgBound(column, 0.0, INFINITE)
        every: dict[int, tuple[float, float]] = dict.fromkeys(self._hosts.values(), (-INFINITE, INFINITE))
        bound, hosting = self._bound(lp, enough, budget)
        if lp.isOptimal():
            self.values = lp.getPrimal()
        open_parts = [(-bound, 0, every, hosting)]
        for number in range(1, 2 * PARTS - 1, 2):
            bound, _, limits, hosting = open_parts[0]
            split = max(hosting, key=lambda row: hosting[row][1], default=None)
            if -bound <= certified or split is None:
                break
            heappop(open_parts)
            low, high = limits[split]
            below = float(math.floor(hosting[split][0]))
            for more, sides in ((0, (low, below)), (1, (below + 1.0, high))):
                part = {**limits, split: sides}
                for row, (least, most) in part.items():
                    lp.chgSide(row, least, most)
                found, hosting_there = self._bound(lp, enough, budget)
                heappush(open_parts, (max(bound, -found), number + more, part, hosting_there))
        return -open_parts[0][0]

    def _bound(self, lp: LP, enough: float, budget: Budget) -> tuple[float, dict[int, tuple[float, float]]]:
        """Price columns until the bound is ``enough``, or near the relaxation's value.

        Returns:
            The bound; and by row of hosts that are no whole number, how many and how much a split there may tell.
        """
        work, bound = PRICED, math.inf
        sizes = np.array(self.limits[: len(self.options.groups)])
        for _ in range(ROUNDS):
            work -= AROUND + lp.nrows() * lp.ncols() // SOLVED
            if not solved(lp):
                break
            over, found, priced = self._priced(np.array(lp.getDual()))
            work -= priced
            bound = min(bound, lp.getObjVal() + float(sizes @ over))
            added = self.add(found)
            for column in added:
                lp.addCol(list(column.entries), column.worth, 0.0, INFINITE)
            if bound <= enough or work <= 0 or not added or bound - lp.getObjVal() <= CLOSE:
                break
            if budget.left() <= 0:
                time_ran_out()
                break
        hosting = {}
        if solved(lp):
            activity, values = lp.getActivity(), lp.getPrimal()
            self._in_use.update([column for column, _ in self.contents if values[column] > IN_USE])
            for (q, _), row in self._hosts.items():
                part = activity[row] % 1.0
                if min(part, 1.0 - part) > NEAR:
                    hosting[row] = activity[row], min(part, 1.0 - part) * self._weights[q]
        return bound, hosting

    def _priced(self, duals: np.ndarray) -> tuple[np.ndarray, list[SharedDevice], int]:
        """Return by group the most that a content earns beyond a device's price; contents that do; slices priced."""
        over = np.zeros(len(self.options.groups))
        if self.together is None:
            return over, [], 0
        gains = duals[self._slice_rows] * self._slice_shares - duals[self._slice_hosts]
        prices = duals[self._groups]
        least = prices + LEAST * np.maximum(1.0, np.abs(prices))
        fluid = self.together.fluid(gains)
        which = np.nonzero(fluid > least)[0]
        np.maximum.at(over, self._groups, np.minimum(fluid, least) - prices)
        found, priced = [], 0
        for k, best in zip(which.tolist(), self.together.best(gains, least, which), strict=True):
            search = self.searches[k]
            priced += len(search.slices)
            over[search.g] = max(over[search.g], best.bound - float(prices[k]))
            if best.chosen:
                found.append(search.device(best.chosen))
        return over, found, priced

    # --- SCIP --------------------------------------------------------------------------------------------------------

    def best_counts(self, start: Evaluated, budget: Budget) -> DeviceCounts | None:
        lp = self._linear()
        costs = lp.getRedcost() if solved(lp) else [0.0] * len(self.columns)
        values = start.values + [0.0] * (len(self.columns) - len(start.values))
        promising = sorted((column for column, _ in self.contents), key=lambda column: abs(costs[column]))
        used = {*promising[:IN_SCIP], *self._in_use, *(column for column, _ in self.contents if values[column] > 0)}
        unused = {column for column, _ in self.contents} - used
        model = new_model()
        # The root node dominates: no probing, and few rounds of cuts.
        model.setPresolve(SCIP_PARAMSETTING.FAST)
        model.setParam("separating/maxroundsroot", 5)
        model.setParam("separating/maxrounds", 1)
        model.setParam("branching/relpscost/initcand", 8)
        model.setParam("limits/stallnodes", STALL_NODES)
        model.setParam("randomization/randomseedshift", SEED)
        model.setParam("limits/absgap", SCIP_GAP * start.points)
        rows: list[list] = [[] for _ in self.limits]
        variables = []
        for i, column in enumerate(self.columns):
            most = 0.0 if i in unused else None if column.most >= INFINITE else column.most
            variables.append(model.addVar(f"c{i}", vtype="I" if column.whole else "C", lb=0, ub=most))
            for row, part in column.entries:
                rows[row].append(part * variables[-1])
        for row, limit in zip(rows, self.limits, strict=True):
            if row and limit < INFINITE:
                model.addCons(quicksum(row) <= limit)
        worth = quicksum(c.worth * v for c, v in zip(self.columns, variables, strict=True) if c.worth)
        begun = {f"c{i}": value for i, value in enumerate(values)}
        solution = maximise(model, worth, min(budget.left(), INFINITE), 0.0, begun, NODES)
        return None if solution is None else self._counts([solution.values[v.name] for v in variables])

    def _counts(self, values: Sequence[float]) -> DeviceCounts:
        counts = DeviceCounts(self.options)
        dedicated = np.zeros_like(counts.dedicated)
        for use, column in self.dedicated.items():
            dedicated[use] = round(values[column])
        counts.set(dedicated, [device for column, device in self.contents for _ in range(round(values[column]))])
        return counts


def _key(device: SharedDevice) -> tuple:
    return device.group, device.revisit_s, tuple(sorted((q, s.variant.id, s.rows) for q, s, _ in device.residents))


def _useful(table: SliceTable, shares: np.ndarray) -> list[int]:
    """Indices of the slices that no other of their application dominates.

    At this demand, another one dominates a slice if it is no slower, no larger, no less accurate and supplies no less.
    """
    useful: list[int] = []
    accuracy = [slice_.variant.accuracy for slice_ in table.slices]
    seconds, memory, supplied = table.seconds.tolist(), table.memory.tolist(), shares.tolist()
    by_owner: dict[int, list[int]] = {}
    for j, q in enumerate(table.owner.tolist()):
        by_owner.setdefault(q, []).append(j)
    for q in sorted(by_owner):
        mine: list[int] = []
        for j in sorted(by_owner[q], key=lambda j: (seconds[j], -accuracy[j], -supplied[j], memory[j])):
            if not any(
                accuracy[i] >= accuracy[j] and supplied[i] >= supplied[j] and memory[i] <= memory[j] for i in mine
            ):
                mine.append(j)
        useful += sorted(mine)
    return useful
