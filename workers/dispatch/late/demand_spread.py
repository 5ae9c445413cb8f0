"""How the demand of all classes spreads over the devices that they share. Pure.

A query goes where it is answered soonest, so a class leaves devices that others fill for those that only it can use.
The *load* of a device is the part of its capacity that is needed there. Each class is spread over its devices so that
the highest loads are nearly as low as can be: its share of a device falls as the device's load rises, a few times over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from .state import DeviceGroup, ServedClass

#: times that shares follow loads; the highest load is then within a tenth of the lowest possible one, mostly less
ROUNDS = 20
#: bounds that keep rounding out: a lower rate (rows/s) is none, and no share gets a lower weight
LEAST_RATE = 1e-3
LEAST_WEIGHT = 1e-6


def spread(classes: Collection[ServedClass], longest_s: Mapping[ServedClass, float]) -> dict[ServedClass, list[float]]:
    """Spread the demand, and return the loads of each class's devices.

    Args:
        classes: all; those with restrictions share the demand of the whole class, and are passed over.
        longest_s: by class, seconds of the longest batches that count for throughputs.

    Returns:
        Mean loads, weighted by where the class's rows go: by pressure level, and at last of the quickest options.
        Without classes of which nothing comes, and those that nothing can run.
    """
    found, starts, rates = [], [], []
    groups: dict[DeviceGroup, int] = {}
    of_class, of_group, counts, throughputs = [], [], [], []
    for served in classes:
        rate = served.demand.rate.value
        if served.permitted is not None or rate < LEAST_RATE:
            continue
        start, within_s = len(counts), longest_s[served]
        for offer in served.offers:
            each = offer.option_set.throughputs(within_s)
            if each[-1]:
                for group in offer.groups:
                    if group.count:
                        of_class.append(len(found))
                        of_group.append(groups.setdefault(group, len(groups)))
                        counts.append(group.count)
                        throughputs.append(each)
        if len(counts) > start:
            found.append(served)
            starts.append(start)
            rates.append(rate)
    if not found:
        return {}
    # One row for each pair of a class and a device group; those of a class are neighbours.
    capacity = np.array(throughputs) * np.array(counts, float)[:, np.newaxis]
    of_class, of_group, rates = np.array(of_class), np.array(of_group), np.array(rates)
    weights = _balanced(capacity[:, -1], of_class, of_group, starts, rates)
    weighted = weights[:, np.newaxis] * capacity
    needed = rates[:, np.newaxis] / np.add.reduceat(weighted, starts)
    loads = np.zeros((len(groups), capacity.shape[1]))
    np.add.at(loads, of_group, weights[:, np.newaxis] * needed[of_class])
    rows = weighted[:, -1:] * needed[of_class, -1:] / rates[of_class, np.newaxis]
    return dict(zip(found, np.add.reduceat(rows * loads[of_group], starts).tolist(), strict=True))


def _balanced(
    capacity: np.ndarray, of_class: np.ndarray, of_group: np.ndarray, starts: list[int], rates: np.ndarray
) -> np.ndarray:
    """Return the weights of pairs, with which loads are nearly balanced.

    A class uses its device groups in proportion to weight and capacity.
    """
    weights = np.ones(len(capacity))
    for _ in range(ROUNDS):
        needed = rates / np.add.reduceat(weights * capacity, starts)
        weights /= np.bincount(of_group, weights * needed[of_class])[of_group]
        weights = np.maximum(weights / np.maximum.reduceat(weights, starts)[of_class], LEAST_WEIGHT)
    return weights
