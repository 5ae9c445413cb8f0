"""How the demand of all classes spreads over the devices that they share. Pure.

A query goes where it is answered soonest, so a class leaves devices that others fill for those that only it can use.
The *load* of a device is the part of its capacity that is needed there. Each class is spread over its devices so that
the highest loads are nearly as low as can be: its share of a device falls as the device's load rises, a few times over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import is_

import numpy as np

from ..options import LEVELS
from .state import ClassOffer, DeviceGroup, ServedClass

#: times that shares follow loads; the highest load is then within a tenth of the lowest possible one, mostly less
ROUNDS = 20
#: ratio of the highest load to the lowest one from which all devices count as loaded alike
ALIKE = 1.001
#: bounds that keep rounding out: a lower rate (rows/s) is none, no share gets a lower weight, and no load is lower
LEAST_RATE = 1e-3
LEAST_WEIGHT = 1e-6
LEAST_LOAD = 1e-12


class DemandSpread:
    """What classes could do on their device groups, while those stay.

    Classes with restrictions share the demand of the whole class, and are passed over.

    Args:
        classes: all.
        longest_s: by class, seconds of the longest batches that count for throughputs.
    """

    def __init__(self, classes: Collection[ServedClass], longest_s: Mapping[ServedClass, float]) -> None:
        self._offers = [served.offers for served in classes]
        self._classes: list[ServedClass] = []
        self._groups: dict[DeviceGroup, int] = {}
        self._starts: list[int] = []
        of_class, of_group, throughputs = [], [], []
        for served in classes:
            if served.permitted is not None:
                continue
            start = len(of_class)
            for offer, group in _pairs(served):
                each = offer.option_set.throughputs(longest_s[served])
                if each[-1]:
                    of_class.append(len(self._classes))
                    of_group.append(self._groups.setdefault(group, len(self._groups)))
                    throughputs.append(group.count * each)
            if len(of_class) > start:
                self._classes.append(served)
                self._starts.append(start)
        self._counts = _counts(self._offers)
        # One row for each pair of a class and a device group; those of a class are neighbours.
        self._of_class, self._of_group = np.array(of_class, int), np.array(of_group, int)
        self._capacity = np.array(throughputs).reshape(-1, LEVELS + 1)

    def holds(self, classes: Collection[ServedClass]) -> bool:
        """Whether the classes, groups and numbers of devices are still those."""
        offers = [served.offers for served in classes]
        same = len(offers) == len(self._offers) and all(map(is_, offers, self._offers))
        return same and _counts(offers) == self._counts

    def loads(self) -> dict[ServedClass, np.ndarray]:
        """Spread the demand, and return the loads of each class's devices.

        Returns:
            Mean loads, weighted by where the class's rows go: by pressure level, and at last of the quickest options.
            Without classes of which nothing comes, and those that nothing can run.
        """
        rates = np.array([served.demand.rate.value for served in self._classes])
        rates[rates < LEAST_RATE] = 0.0
        if not rates.any():
            return {}
        of_class, of_group, starts = self._of_class, self._of_group, self._starts
        weights = self._balanced(rates)[:, np.newaxis]
        weighted = weights * self._capacity
        capacity = np.add.reduceat(weighted, starts)
        shares = weighted[:, -1:] / capacity[of_class, -1:]
        loads = np.zeros((len(self._groups), LEVELS + 1))
        np.add.at(loads, of_group, weights * (rates[:, np.newaxis] / capacity)[of_class])
        means = np.add.reduceat(shares * loads[of_group], starts)
        return {served: means[i] for i, served in enumerate(self._classes) if rates[i]}

    def _balanced(self, rates: np.ndarray) -> np.ndarray:
        """Return the weights of pairs, with which loads are nearly balanced.

        A class uses its device groups in proportion to weight and capacity.
        """
        capacity, of_class, of_group, starts = self._capacity[:, -1], self._of_class, self._of_group, self._starts
        weights = np.ones(len(capacity))
        for _ in range(ROUNDS):
            needed = rates / np.add.reduceat(weights * capacity, starts)
            loads = np.maximum(np.bincount(of_group, weights * needed[of_class]), LEAST_LOAD)
            if loads.max() <= ALIKE * loads.min():
                break
            weights /= loads[of_group]
            weights = np.maximum(weights / np.maximum.reduceat(weights, starts)[of_class], LEAST_WEIGHT)
        return weights


def _pairs(served: ServedClass) -> list[tuple[ClassOffer, DeviceGroup]]:
    return [(offer, group) for offer in served.offers for group in offer.groups if group.count]


def _counts(offers: list[list[ClassOffer]]) -> list[int]:
    return [group.count for mine in offers for offer in mine for group in offer.groups]
