"""The best plan of few devices, and a near bound, by dynamic programming.

A plan of few devices is a choice, for each application, of at most one slice on each device (or of the whole device): a
*pattern*. The applications are taken one after the other; a state is what is left of each device. Prices of slices, the
duals of the relaxation (:mod:`.column_generation`), bound what the other applications add: on each device the best
content at these prices, by a knapsack with sizes rounded down to a grid, and for each application the pattern that is
worth most beyond them (Lagrangean decomposition; Guignard and Kim 1987). States whose bound is low enough are dropped,
and equal ones. The states kept are limited, so that searches repeat exactly; what this cuts off
only raises the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .column_generation import Relaxed
from .device_counts import DeviceCounts
from .group_options import SERVED
from .knapsack import ROUNDING
from .solver import Budget, time_ran_out

#: States kept after each application.
WIDTH = 2_000
#: Most rounds, and how many of them may cut states off.
ROUNDS, CUT = 24, 4
#: Grid of the knapsacks: parts of a slice budget.
GRID = 512
#: Pairs of a state and a pattern, beyond which the search is given up.
PAIRS = 400_000
PATTERNS = 10_000
#: Numbers (8 bytes each) in the largest array of patterns.
CELLS = 40_000_000


@dataclass(frozen=True, slots=True)
class _Items:
    """Slices of an application on one device.

    Attributes:
        mode: index of the device's revisit period; the last one: dedicated.
        uses: (item x resource) as shares of the device's time, memory and residents.
        gain: price.
        earns: (item x price) points at each price of the application's items.
        at: the slice in its search; -1: dedicated.
    """

    mode: np.ndarray
    uses: np.ndarray
    gain: np.ndarray
    earns: np.ndarray
    at: np.ndarray


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Patterns of one application.

    Attributes:
        chosen: items by device (-1: none).
        short: by how much a pattern is worth less than the best one at the prices, ascending.
        cut: no pattern beyond those kept is short by less; infinite: none was cut off.
    """

    chosen: np.ndarray
    uses: np.ndarray
    mode: np.ndarray
    values: np.ndarray
    short: np.ndarray
    cut: float


@dataclass(frozen=True, slots=True)
class _States:
    """States of the search: resources left, values and bounds.

    Attributes:
        left: of each device (state x device x resource).
        mode: of each device (-1: open).
        values: in each objective.
        bound: of the plans that follow from a state.
        path: patterns chosen.
    """

    left: np.ndarray
    mode: np.ndarray
    values: np.ndarray
    bound: np.ndarray
    path: np.ndarray

    def __getitem__(self, kept: np.ndarray) -> _States:
        return _States(self.left[kept], self.mode[kept], self.values[kept], self.bound[kept], self.path[kept])


class FewDevices:
    """The search at the relaxation's prices.

    States are valued in three objectives: the relaxation's, with its price of what is served; ``SERVED`` * served +
    points; and points alone. Each bounds the worth of a plan where only so much counts as served."""

    def __init__(self, relaxed: Relaxed):
        self._program = relaxed.program
        self._searches = [search.contents for search in relaxed.searches]
        self._prices = prices = relaxed.prices()
        options, counts = relaxed.program.options, DeviceCounts(relaxed.program.options)
        self._groups = [g for g, group in enumerate(options.groups) for _ in range(len(group))]
        most = relaxed.program.columns[0].most
        self._beyond = np.array([(SERVED - prices.served) * most, 0.0, SERVED * most])
        self._serve: list[np.ndarray] = []
        self._items: list[list[_Items]] = []
        for q, (application, own) in enumerate(zip(options.applications, options.by_application, strict=True)):
            worth = application.weight * np.array([prices.served, SERVED, 0.0])
            share = application.demand / relaxed.program.total
            # The relaxation's price of an item, at which nothing earns more than it costs.
            price = prices.shares[q] / share - worth[0]
            grid = np.unique(np.concatenate((own.prices[own.prices >= -worth[1]], -worth, [price])))
            self._serve.append(share * np.maximum(worth[:, None] + grid, 0.0))
            self._items.append([self._items_of(q, g, grid, counts) for g in range(len(options.groups))])
        used = [r for r in range(3) if r == 0 or any(i.uses[:, r].any() for mine in self._items for i in mine)]
        self._items = [[replace(i, uses=i.uses[:, used]) for i in mine] for mine in self._items]
        self._uses = len(used)
        self._arrange(list(range(len(self._items))))

    def _arrange(self, order: list[int]) -> None:
        """Take the applications in this order."""
        self._order = order
        self._serve, self._items = [self._serve[i] for i in order], [self._items[i] for i in order]
        groups = range(len(self._program.options.groups))
        self._rest = [self._tables(g) for g in groups]
        self._regret = [self._regrets(g) for g in groups]
        best = self._bests = [self._best(q) for q in range(len(order))]
        self._add = np.concatenate((np.cumsum(best[::-1])[::-1], [0.0])) + self._beyond[0]
        self.root = float(self._add[0]) + sum(float(self._rest[g][0][-1, -1]) for g in self._groups)

    def _items_of(self, q: int, g: int, grid: np.ndarray, counts: DeviceCounts) -> _Items:
        application = self._program.options.applications[q]
        demand = application.demand
        own, total = self._program.options.by_application[q], self._program.total
        group = self._program.options.groups[g].one
        rows: list[tuple[int, tuple[float, float, float], float, np.ndarray, int]] = []
        for k, (contents, gains) in enumerate(zip(self._searches, self._prices.gains, strict=True)):
            if contents.g != g:
                continue
            for at in np.nonzero(contents.owner == q)[0].tolist():
                j, table = contents.slices[at], contents.table
                # No slice serves more than all.
                part = min(1.0, demand / table.slices[j].rate)
                uses = float(table.seconds[j]), float(table.memory[j]), 1 / (group.max_resident or np.inf)
                rows.append((k, uses, float(gains[at]), part * table.earns[j, : len(own.prices)], at))
        if own.operating_points[g]:
            best = max(point.variant.accuracy for point in own.operating_points[g]) * application.weight
            earns = np.minimum(own.dedicated[g], demand * np.maximum(best - own.prices, 0.0))
            rows.append((len(self._searches), (1.0, 0.0, 0.0), float(self._prices.devices[g]), earns, -1))
        return _Items(
            np.array([row[0] for row in rows], dtype=int),
            np.array([row[1] for row in rows]).reshape(len(rows), 3),
            np.array([row[2] for row in rows]),
            np.array([np.interp(grid, own.prices, row[3]) / total for row in rows]).reshape(len(rows), len(grid)),
            np.array([row[4] for row in rows], dtype=int),
        )

    def _tables(self, g: int) -> list[np.ndarray]:
        """Return the most that applications gain on a device of the group.

        Returns:
            By application, the most that it and those after it gain, by mode (the last but one: dedicated; the last:
            open) and grid units left.
        """
        modes = len(self._searches)
        after = np.zeros((modes + 2, GRID + 1))
        tables = [after]
        for items in (mine[g] for mine in reversed(self._items)):
            here = after.copy()
            size = np.floor(items.uses[:, 0] * GRID * (1 - ROUNDING)).astype(int)
            for mode, units, gain in zip(items.mode.tolist(), size.tolist(), items.gain.tolist(), strict=True):
                if mode < modes:
                    np.maximum(here[mode, units:], after[mode, : GRID + 1 - units] + gain, out=here[mode, units:])
                else:
                    here[-1] = np.maximum(here[-1], gain)
            here[-1] = np.maximum(here[-1], here[:modes, -1].max(initial=0.0))
            tables.append(here)
            after = here
        return tables[::-1]

    def _regrets(self, g: int) -> list[tuple[np.ndarray, float]]:
        """Return what a device of the group gains less than at best.

        Returns:
            By application, that with each of its items, and that without any.
        """
        modes = len(self._searches)
        before, found = np.zeros((modes + 1, GRID + 1)), []
        before[-1] = -np.inf
        dedicated = [float(items.gain[items.mode == modes].max(initial=0.0)) for items in (i[g] for i in self._items)]
        for q, items in enumerate(mine[g] for mine in self._items):
            after = self._rest[g][q + 1]
            size = np.floor(items.uses[:, 0] * GRID * (1 - ROUNDING)).astype(int)
            others = max([0.0, *dedicated[:q], *dedicated[q + 1 :]])
            others = max(others, float((before[:modes] + after[:modes, ::-1]).max(initial=0.0)))
            with_it, here = items.gain.copy(), before.copy()
            for i, (mode, units, gain) in enumerate(zip(items.mode.tolist(), size.tolist(), items.gain, strict=True)):
                if mode < modes:
                    room = GRID + 1 - units
                    with_it[i] += float((before[mode, :room] + after[mode, :room][::-1]).max())
                    np.maximum(here[mode, units:], before[mode, :room] + gain, out=here[mode, units:])
            best = float(self._rest[g][0][-1, -1])
            found.append((np.maximum(best - with_it, 0.0), max(best - others, 0.0)))
            before = here
        return found

    def _best(self, q: int) -> float:
        """At least as much as any pattern of the application is worth beyond its price."""
        return float((self._serve[q][0] + sum(_most(self._items[q][g]) for g in self._groups)).min())

    def _patterns(self, q: int, slack: float) -> _Patterns:
        """Return the application's patterns that are nearly as good as the best.

        Only these can be in a plan that is short of the root's bound by ``slack`` at most.
        """
        # The earnings at any one price, summed, bound what a pattern is worth.
        later = [_most(self._items[q][g], *self._regret[g][q]) for g in self._groups]
        sums, cost = np.zeros((1, self._serve[q].shape[1])), np.zeros(1)
        chosen, cut = np.full((1, len(self._groups)), -1), np.inf
        all_usable = [np.nonzero(self._regret[g][q][0] <= slack)[0] for g in self._groups]
        widest = sums.shape[1] * (1 + max(map(len, all_usable)))
        most = max(1, min(PATTERNS, CELLS // widest))
        for d, (g, usable) in enumerate(zip(self._groups, all_usable, strict=True)):
            items, (regrets, without) = self._items[q][g], self._regret[g][q]
            sums = np.concatenate((sums, (sums[:, None] + items.earns[usable]).reshape(-1, sums.shape[1])))
            paid = items.gain[usable] + regrets[usable]
            cost = np.concatenate((cost + without, (cost[:, None] + paid).reshape(-1)))
            more = np.repeat(chosen, len(usable), axis=0)
            more[:, d] = np.tile(usable, len(chosen))
            chosen = np.concatenate((chosen, more))
            short = self._bests[q] + cost - (sums + (self._serve[q][0] + sum(later[d + 1 :]))).min(axis=1)
            kept = np.nonzero(short <= slack + ROUNDING * SERVED)[0]
            if len(kept) > most:
                kept = kept[np.argsort(short[kept], kind="stable")]
                cut = min(cut, float(short[kept[most]]))
                kept = kept[:most]
            sums, cost, chosen = sums[kept], cost[kept], chosen[kept]
        values = (sums[:, None] + self._serve[q]).min(axis=2)
        uses, mode, price = np.zeros((*chosen.shape, self._uses)), np.full(chosen.shape, -1), np.zeros(len(chosen))
        for d, g in enumerate(self._groups):
            taken, items = chosen[:, d] >= 0, self._items[q][g]
            uses[taken, d] = items.uses[chosen[taken, d]]
            mode[taken, d] = items.mode[chosen[taken, d]]
            price[taken] += items.gain[chosen[taken, d]]
        short = self._bests[q] - (values[:, 0] - price)
        order = np.argsort(short, kind="stable")
        return _Patterns(chosen[order], uses[order], mode[order], values[order], short[order], cut)

    def close(
        self, step: float, enough: Callable[[], float], take: Callable[[DeviceCounts], None], budget: Budget
    ) -> tuple[float, bool]:
        """Search until the bound of all plans is enough.

        Plans are sought that are worth at most ``step`` less than the root's bound, then twice as much less, and so on;
        once there is one, those that are worth more than is enough for it. Plans found are taken.

        Returns:
            A bound for all plans, ``enough()`` or what is reached with :data:`WIDTH` states; and whether it is enough.
        """
        bound, slack, found, cut, clear = self.root, step, False, 0, 0.0
        many = [len(self._patterns(q, 2 * step).short) for q in range(len(self._items))]
        self._arrange(sorted(range(len(many)), key=many.__getitem__))
        for _ in range(ROUNDS):
            if bound <= enough():
                return bound, True
            if budget.left() <= 0:
                time_ran_out()
                break
            least = max(self.root - slack, enough())
            reached, ended = self._search(least, take, budget)
            bound = min(bound, reached)
            found |= ended
            if least <= enough():
                break
            cut += reached > least and not ended
            if cut == CUT:
                break
            # Where states were cut off, less was too little and this too much.
            slack, clear = (slack + clear) / 2 if reached > least else 2 * slack, slack if reached <= least else clear
            if found:
                slack = self.root - enough()
        return bound, bound <= enough()

    def _search(self, enough: float, take: Callable[[DeviceCounts], None], budget: Budget) -> tuple[float, bool]:
        """Search the plans that are worth more than ``enough``.

        Args:
            take: receives the best one found.

        Returns:
            A bound for all plans, at least ``enough``; and whether a plan was found that is worth more.
        """
        slack, width = self.root - enough, WIDTH
        devices, applications = len(self._groups), len(self._items)
        states = _States(
            np.full((1, devices, self._uses), 1.0 + ROUNDING),
            np.full((1, devices), -1),
            np.zeros((1, 3)),
            np.array([self.root]),
            np.full((1, applications, devices), -1),
        )
        dropped = enough
        for q in range(applications):
            if budget.left() <= 0:
                time_ran_out()
                return max(dropped, float(states.bound.max())), False
            patterns = self._patterns(q, slack)
            states, cut = self._extended(states, q, patterns, enough)
            dropped = max(dropped, cut, self.root - patterns.cut)
            states = _different(self._sorted(states))
            order = np.argsort(-states.bound, kind="stable")
            if len(order) > width:
                dropped = max(dropped, float(states.bound[order[width]]))
            states = states[order[:width]]
            if not len(states.bound):
                return dropped, False
        bounds = (states.values + self._beyond).min(axis=1)
        take(self._counts(states.path[int(bounds.argmax())]))
        return max(dropped, float(bounds.max())), True

    def _extended(self, states: _States, q: int, patterns: _Patterns, enough: float) -> tuple[_States, float]:
        """Extend the states by each pattern that fits and is not short by too much.

        Returns:
            The states, and the bound of those left out.
        """
        low, high = enough, float(states.bound.max())
        usable = np.searchsorted(patterns.short, states.bound - low, side="right")
        for _ in range(12 if usable.sum() > PAIRS else 0):
            middle = (low + high) / 2
            fewer = np.searchsorted(patterns.short, states.bound - middle, side="right")
            low, high = (low, middle) if fewer.sum() <= PAIRS else (middle, high)
        cut = enough
        if usable.sum() > PAIRS:
            cut, usable = high, np.searchsorted(patterns.short, states.bound - high, side="right")
        parent = np.repeat(np.arange(len(usable)), usable)
        which = np.arange(len(parent)) - np.repeat(np.cumsum(usable) - usable, usable)
        before, wanted = states.mode[parent], patterns.mode[which]
        left = states.left[parent] - patterns.uses[which]
        fits = (left >= 0).all(axis=(1, 2)) & ((before < 0) | (wanted < 0) | (before == wanted)).all(axis=1)
        parent, which, left = parent[fits], which[fits], left[fits]
        mode = np.where(wanted[fits] < 0, before[fits], wanted[fits])
        values = states.values[parent] + patterns.values[which]
        bound = values[:, 0] + self._add[q + 1]
        units = np.minimum(left[:, :, 0] * GRID * (1 + ROUNDING), GRID).astype(int)
        for d, g in enumerate(self._groups):
            bound += self._rest[g][q + 1][mode[:, d], units[:, d]]
        kept = np.nonzero(bound > enough)[0]
        path = states.path[parent[kept]]
        path[:, q] = patterns.chosen[which[kept]]
        return _States(left[kept], mode[kept], values[kept], bound[kept], path), cut

    def _sorted(self, states: _States) -> _States:
        """Order identical devices by what is left of them."""
        left, mode, path = states.left, states.mode, states.path
        key = mode + np.minimum(left[:, :, 0], 1.0) / 2
        # Modes are at most as many: devices of one group stay beside each other.
        key = key + 10 * (1 + len(self._searches)) * np.array(self._groups)
        order = np.argsort(key, axis=1, kind="stable")
        return _States(
            np.take_along_axis(left, order[:, :, None], axis=1),
            np.take_along_axis(mode, order, axis=1),
            states.values,
            states.bound,
            np.take_along_axis(path, order[:, None, :], axis=2),
        )

    def _counts(self, path: np.ndarray) -> DeviceCounts:
        made = DeviceCounts(self._program.options)
        dedicated, shared = np.zeros_like(made.dedicated), []
        for d, g in enumerate(self._groups):
            chosen: list[int] = []
            for i, item in enumerate(path[:, d].tolist()):
                if item >= 0:
                    items = self._items[i][g]
                    if items.at[item] < 0:
                        dedicated[self._order[i], g] += 1
                    else:
                        k = int(items.mode[item])
                        chosen.append(int(items.at[item]))
            if chosen:
                shared.append(self._searches[k].device(chosen))
        made.set(dedicated, shared)
        return made


def _most(items: _Items, regrets: np.ndarray | float = 0.0, without: float = 0.0) -> np.ndarray:
    """Return the most that an application's choice on a device earns.

    It is what the choice earns beyond its cost, at each price of an item.
    """
    return (items.earns - (items.gain + regrets)[:, None]).max(axis=0, initial=-without)


def _different(states: _States) -> _States:
    """Return the states without those that equal another one."""
    left = states.left.reshape(len(states.left), states.left.shape[1] * states.left.shape[2])
    rounded = np.concatenate((states.mode, left, states.values), axis=1).round(9)
    return states[np.sort(np.unique(rounded, axis=0, return_index=True)[1])]
