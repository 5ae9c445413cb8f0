"""Device counts and their exact value.

Devices that are dedicated are counted by application and group; others are shared.

Given the counts, applications do not compete any more, and the most that one of them can earn is a small linear
program: each device of group g runs a mix of the application's options, each resident of a shared device has a rate
limit, and all rates add up to what is served. Its dual has one variable, a price p of the application's items:

    V = min over p of  serve(p) + sum_g n[g] * max_o rate_o * (accuracy_o - p)^+  +  sum_j rate_j * (accuracy_j - p)^+

which is piecewise linear, so that the least value lies at one of the application's break points
(:class:`~.group_options.ApplicationOptions`). A change of one device changes one row of a table (application x price);
all changes of one kind are evaluated at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .group_options import FLOOR, SERVED, GroupOptions, TimeSlice


@dataclass(frozen=True, eq=False)
class SharedDevice:
    """``residents``: (application, slice, points/s at each price)."""

    group: int
    revisit_s: float
    residents: tuple[tuple[int, TimeSlice, np.ndarray], ...]


class DeviceCounts:
    """Devices by application and group, those that are shared, and their worth.

    That is in points/s, with :data:`~.group_options.SERVED` points for each weighted item served, and
    :data:`~.group_options.FLOOR` points for one within a floor.
    """

    def __init__(self, options: GroupOptions):
        self.options = options
        queries, groups = len(options.applications), len(options.groups)
        self.sizes = np.array([len(group) for group in options.groups])
        widest = max(len(own.prices) for own in options.by_application)
        # Rows are padded with the application's last price, where nothing is earned; slice tables likewise.
        self.prices = np.array(
            [np.pad(c.prices, (0, widest - len(c.prices)), mode="edge") for c in options.by_application]
        )
        self.earns = np.zeros((queries, groups, widest))
        for q, own in enumerate(options.by_application):
            self.earns[q, :, : len(own.prices)] = own.dedicated
        demand = np.array([a.demand for a in options.applications])[:, None]
        weight = np.array([a.weight for a in options.applications])[:, None]
        floor = np.array([a.floor for a in options.applications])[:, None]
        in_floor = demand * floor * (FLOOR * weight + self.prices)
        beyond = demand * (1 - floor) * (SERVED * weight + self.prices)
        self._serve = np.maximum(np.maximum(in_floor, in_floor + beyond), 0.0)
        self.dedicated = np.zeros((queries, groups), dtype=int)
        self.shared: list[SharedDevice] = []
        self.table = self._serve.copy()

    def copy(self) -> DeviceCounts:
        other = object.__new__(DeviceCounts)
        other.__dict__.update(self.__dict__)
        other.dedicated, other.shared, other.table = self.dedicated.copy(), list(self.shared), self.table.copy()
        return other

    def set(self, dedicated: np.ndarray, shared: Iterable[SharedDevice] = ()) -> None:
        self.dedicated = dedicated.astype(int)
        self.shared = list(shared)
        self._refresh(range(len(self.table)))

    def _refresh(self, queries: Iterable[int]) -> None:
        for q in queries:
            self.table[q] = self._serve[q] + self.dedicated[q] @ self.earns[q]
        for device in self.shared:
            for q, _, earns in device.residents:
                if q in queries:
                    self.table[q] += earns

    @property
    def value(self) -> float:
        return float(self.table.min(axis=1).sum())

    def free(self) -> np.ndarray:
        used = self.dedicated.sum(axis=0)
        for device in self.shared:
            used[device.group] += 1
        return self.sizes - used

    # --- changes -----------------------------------------------------------------------------------------------------

    def dedicate(self, q: int, g: int, count: int = 1) -> None:
        self.dedicated[q, g] += count
        self.table[q] += count * self.earns[q, g]

    def share(self, device: SharedDevice) -> None:
        self.shared.append(device)
        for q, _, earns in device.residents:
            self.table[q] += earns

    def unshare(self, index: int) -> SharedDevice:
        device = self.shared.pop(index)
        self._refresh({q for q, _, _ in device.residents})
        return device

    # --- what changes would gain ------------------------------------------------------------------------------------

    def utility(self) -> np.ndarray:
        return self.table.min(axis=1)

    def gains(self, g: int) -> np.ndarray:
        """By application, the gain of one more device of the group."""
        return (self.table + self.earns[:, g]).min(axis=1) - self.utility()
