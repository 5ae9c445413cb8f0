"""How the demand of all classes spreads over the devices that they share. Pure.

A query goes where it is answered soonest, so a class leaves devices that others fill for those that only it can use.
The *load* of a device is the part of its capacity that is needed there. Each class is spread so that the highest loads
are low: its share of a device falls as the device's load rises, and rises where the class is quicker than others are
(gradient steps for a power of the loads, whose sum the highest one dominates). Throughputs are those of the options
that the demand allows: which device is quick for a class differs between its accurate and its quick options. Shares
follow the demand over some looks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import is_

import numpy as np

from ..options import LEVELS
from .state import ClassOffer, DeviceGroup, ServedClass

#: the power of the loads
POWER = 8.0
#: times that shares follow loads, at first and with each further look
FIRST_ROUNDS, ROUNDS = 30, 3
#: a lower rate (rows/s) is none
LEAST_RATE = 1e-3
#: least weight (1: of the class's device group with the highest one), so that shares come back soon
LEAST_WEIGHT = 1e-3
#: what counts as the load of devices where nothing comes
LEAST_LOAD = 1e-12


class DemandSpread:
    """Capacities and shares of all classes on their device groups.

    It holds for as long as these stay.

    A class with restrictions has the demand of the whole class, and adds no load of its own.

    Args:
        classes: all.
        longest_s: by class, seconds of the longest batches that count for throughputs.
    """

    def __init__(self, classes: Collection[ServedClass], longest_s: Mapping[ServedClass, float]) -> None:
        self._offers = [served.offers for served in classes]
        self._counts = _counts(self._offers)
        self._classes: list[ServedClass] = []
        self._groups: dict[DeviceGroup, int] = {}
        starts, of_class, of_group, counts, throughputs = [], [], [], [], []
        for served in classes:
            start = len(of_class)
            for offer, group in _pairs(served):
                each = offer.option_set.throughputs(longest_s[served])
                if each[-1]:
                    of_class.append(len(self._classes))
                    of_group.append(self._groups.setdefault(group, len(self._groups)))
                    counts.append(group.count)
                    throughputs.append(each)
            if len(of_class) > start:
                self._classes.append(served)
                starts.append(start)
        # One row for each pair of a class and a device group; those of a class are neighbours.
        self._starts, self._of_class, self._of_group = (np.array(its, int) for its in (starts, of_class, of_group))
        each = np.array(throughputs).reshape(-1, LEVELS + 1)
        capacity = np.array(counts, float)[:, np.newaxis] * each
        # Most levels choose as the one before does: one column for all of these, and the last for the quickest options.
        chosen = (capacity[:, 1:-1] != capacity[:, :-2]).any(axis=0)
        self._levels = [0, *(np.flatnonzero(chosen) + 1).tolist(), LEVELS]
        self._capacity = capacity.take(self._levels, axis=1)
        columns = np.arange(len(self._levels))
        self._cells = (self._of_group[:, np.newaxis] * len(columns) + columns).ravel()
        self._throughputs = each.take(self._levels, axis=1)
        self._set_column(len(self._levels) - 1)
        self._weights = np.ones(len(of_class))
        self._rounds = FIRST_ROUNDS

    def _set_column(self, column: int) -> None:
        self._column = column
        self._quicker = self._comparative(self._throughputs[:, column]) ** (1.0 / POWER)

    def _comparative(self, throughput: np.ndarray) -> np.ndarray:
        """How much quicker a class is on a group than on average."""
        if not len(self._starts):
            return throughput
        logs = np.log(throughput)
        of_class, of_group = self._of_class, self._of_group
        logs -= (np.bincount(of_class, logs) / np.bincount(of_class))[of_class]
        logs -= (np.bincount(of_group, logs) / np.bincount(of_group))[of_group]
        return np.exp(logs)

    def holds(self, classes: Collection[ServedClass]) -> bool:
        offers = [served.offers for served in classes]
        same = len(offers) == len(self._offers) and all(map(is_, offers, self._offers))
        return same and _counts(offers) == self._counts

    def loads(self) -> dict[ServedClass, tuple[int, float]]:
        """Let shares follow the demand, and return the loads of each class's devices.

        Returns:
            The least pressure level at which the mean load, weighted by where rows of the class go, is at most 1
            (:data:`LEVELS`: there is none), and the mean load with the quickest options. Classes that nothing can run
            are left out; all are, where nothing comes.
        """
        rates = np.array([own_rate(served) for served in self._classes])
        if not rates.any():
            return {}
        first = self._rounds == FIRST_ROUNDS
        self._follow(rates)
        of_class, of_group, starts = self._of_class, self._of_group, self._starts
        weights = self._weights[:, np.newaxis]
        weighted = weights * self._capacity
        capacity = np.add.reduceat(weighted, starts)
        shares = weighted[:, -1] / capacity[:, -1][of_class]
        needed = weights * (rates[:, np.newaxis] / capacity).take(of_class, axis=0)
        loads = np.bincount(self._cells, needed.ravel()).reshape(len(self._groups), -1)
        means = np.add.reduceat(shares[:, np.newaxis] * loads.take(of_group, axis=0), starts)
        carried = means <= 1.0
        carried[:, -1] = True
        columns = carried.argmax(axis=1)
        # After a burst the column falls by one a look, so that shares are still those of the burst in the next one.
        column = max(int(columns.max()), 0 if first else self._column - 1)
        if column != self._column:
            self._set_column(column)
        levels = [self._levels[column] for column in columns]
        return dict(zip(self._classes, zip(levels, means[:, -1].tolist(), strict=True), strict=True))

    def _follow(self, rates: np.ndarray) -> None:
        capacity, of_class, of_group = self._capacity[:, self._column], self._of_class, self._of_group
        weights, starts = self._weights, self._starts
        for _ in range(self._rounds):
            needed = rates / np.add.reduceat(weights * capacity, starts)
            loads = np.maximum(np.bincount(of_group, weights * needed[of_class]), LEAST_LOAD)
            weights = weights * self._quicker / loads[of_group]
            weights = np.maximum(weights / np.maximum.reduceat(weights, starts)[of_class], LEAST_WEIGHT)
        self._weights, self._rounds = weights, ROUNDS


def own_rate(served: ServedClass) -> float:
    """Rows/s that count as this class's; those with restrictions have none."""
    rate = served.demand.rate.value
    return rate if served.permitted is None and rate >= LEAST_RATE else 0.0


def _pairs(served: ServedClass) -> list[tuple[ClassOffer, DeviceGroup]]:
    return [(offer, group) for offer in served.offers for group in offer.groups if group.count]


def _counts(offers: list[list[ClassOffer]]) -> list[int]:
    return [group.count for mine in offers for offer in mine for group in offer.groups]
