"""A plan in counts, valued exactly: devices dedicated to applications by group, and shared devices with their turns.

Given the counts, applications do not compete any more, and the most that one of them can earn is a small linear
program: each device of group g runs a mix of the application's options, each resident of a shared device has a rate it
cannot pass, and all rates add up to what is served. Its dual has one variable, a price p of the application's items:

    V = min over p of  serve(p) + sum_g n[g] * max_o rate_o * (accuracy_o - p)^+  +  sum_j rate_j * (accuracy_j - p)^+

which is piecewise linear, so that the least value lies at one of the prices on the application's card. A change of one
device changes one row of a table (application x price), and every change of that kind is tried at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .device_options import FLOOR, SERVED, Menu, Turn


@dataclass(frozen=True, eq=False)
class Shared:
    """A shared device: its group, its turn gap, and (application, turn, what it earns at each price) by resident."""

    group: int
    gap_s: float
    residents: tuple[tuple[int, Turn, np.ndarray], ...]


class Board:
    """Counts and what they are worth (points/s, with :data:`~.device_options.SERVED` points for each weighted item
    served).

    ``dedicated``: devices by application and group. ``shared``: the devices that are shared.
    """

    def __init__(self, menu: Menu):
        self.menu = menu
        queries, groups = len(menu.applications), len(menu.groups)
        self.sizes = np.array([len(group) for group in menu.groups])
        widest = max(len(card.prices) for card in menu.cards)
        # Prices beyond an application's own repeat its last one, where nothing is earned. So do tables of turns.
        self.prices = np.array([np.pad(c.prices, (0, widest - len(c.prices)), mode="edge") for c in menu.cards])
        self.earns = np.zeros((queries, groups, widest))
        for q, card in enumerate(menu.cards):
            self.earns[q, :, : len(card.prices)] = card.dedicated
        demand = np.array([a.demand for a in menu.applications])[:, None]
        weight = np.array([a.weight for a in menu.applications])[:, None]
        floor = np.array([a.floor for a in menu.applications])[:, None]
        in_floor = demand * floor * (FLOOR * weight + self.prices)
        beyond = demand * (1 - floor) * (SERVED * weight + self.prices)
        self._serve = np.maximum(np.maximum(in_floor, in_floor + beyond), 0.0)
        self.dedicated = np.zeros((queries, groups), dtype=int)
        self.shared: list[Shared] = []
        self.table = self._serve.copy()

    def copy(self) -> Board:
        other = object.__new__(Board)
        other.__dict__.update(self.__dict__)
        other.dedicated, other.shared, other.table = self.dedicated.copy(), list(self.shared), self.table.copy()
        return other

    def set(self, dedicated: np.ndarray, shared: Iterable[Shared] = ()) -> None:
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
        """Devices without any use, by group."""
        used = self.dedicated.sum(axis=0)
        for device in self.shared:
            used[device.group] += 1
        return self.sizes - used

    # --- changes -----------------------------------------------------------------------------------------------------

    def dedicate(self, q: int, g: int, count: int = 1) -> None:
        """``count`` more (or fewer) devices of group ``g`` for application ``q``."""
        self.dedicated[q, g] += count
        self.table[q] += count * self.earns[q, g]

    def share(self, device: Shared) -> None:
        self.shared.append(device)
        for q, _, earns in device.residents:
            self.table[q] += earns

    def unshare(self, index: int) -> Shared:
        device = self.shared.pop(index)
        self._refresh({q for q, _, _ in device.residents})
        return device

    # --- what changes would bring ------------------------------------------------------------------------------------

    def worth(self) -> np.ndarray:
        """Points/s of each application."""
        return self.table.min(axis=1)

    def gains(self) -> np.ndarray:
        """Of one more device of each group (application x group)."""
        return (self.table[:, None] + self.earns).min(axis=2) - self.worth()[:, None]

    def losses(self) -> np.ndarray:
        """Of one device less (application x group), at least 0; infinite where there is none."""
        lost = self.worth()[:, None] - (self.table[:, None] - self.earns).min(axis=2)
        return np.where(self.dedicated > 0, lost, np.inf)

    def trades(self, queries: np.ndarray, groups: np.ndarray, less: int, more: int) -> np.ndarray:
        """What each of the pairs of application and group gains by ``less`` devices of the group less and ``more`` of
        another one (pair x other group); minus infinity where it has not so many."""
        kept = self.table[queries] - less * self.earns[queries, groups]
        gained = (kept[:, None] + more * self.earns[queries]).min(axis=2) - self.worth()[queries][:, None]
        return np.where((self.dedicated[queries, groups] >= less)[:, None], gained, -np.inf)
