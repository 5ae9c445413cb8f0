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

from .menu import FLOOR, SERVED, Menu, Turn


@dataclass(frozen=True, eq=False)
class Shared:
    """A shared device: its group, its turn gap, and (application, turn, what it earns at each price) by resident."""

    group: int
    gap_s: float
    residents: tuple[tuple[int, Turn, np.ndarray], ...]


class Board:
    """Counts and what they are worth (points/s, with :data:`~.menu.SERVED` points for each weighted item served).

    ``dedicated``: devices by application and group. ``shared``: the devices that are shared.
    """

    def __init__(self, menu: Menu):
        self.menu = menu
        queries, groups = len(menu.applications), len(menu.groups)
        self.sizes = np.array([len(group) for group in menu.groups])
        widest = max(len(card.prices) for card in menu.cards)
        # Prices beyond an application's own repeat its last one, where nothing is earned. So do tables of turns.
        self.prices = np.array([np.pad(c.prices, (0, widest - len(c.prices)), mode="edge") for c in menu.cards])
        self.earns = np.zeros((queries, widest, groups))
        for q, card in enumerate(menu.cards):
            self.earns[q, : len(card.prices)] = card.dedicated
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
            self.table[q] = self._serve[q] + self.earns[q] @ self.dedicated[q]
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
        self.table[q] += count * self.earns[q, :, g]

    def share(self, device: Shared) -> None:
        self.shared.append(device)
        for q, _, earns in device.residents:
            self.table[q] += earns

    def unshare(self, index: int) -> Shared:
        device = self.shared.pop(index)
        self._refresh({q for q, _, _ in device.residents})
        return device

    # --- what changes would bring ------------------------------------------------------------------------------------

    def gains(self) -> np.ndarray:
        """Of one more device of each group (application x group)."""
        return (self.table[:, :, None] + self.earns).min(axis=1) - self.table.min(axis=1)[:, None]

    def losses(self) -> np.ndarray:
        """Of one device less (application x group), at least 0; infinite where there is none."""
        lost = self.table.min(axis=1)[:, None] - (self.table[:, :, None] - self.earns).min(axis=1)
        return np.where(self.dedicated > 0, lost, np.inf)

    def swaps(self) -> np.ndarray:
        """Of one device less of a group and one more of another (application x group given x group got)."""
        changed = self.table[:, :, None, None] - self.earns[:, :, :, None] + self.earns[:, :, None, :]
        gained = changed.min(axis=1) - self.table.min(axis=1)[:, None, None]
        return np.where(self.dedicated[:, :, None] > 0, gained, -np.inf)


def climb(board: Board, least: float, most_steps: int = 10_000) -> None:
    """Use free devices and exchange dedicated ones, the best change first, while one gains more than ``least``.

    Changes: one more device for an application; one device from an application to another; two applications exchange a
    device of one group for a device of another.
    """
    queries, groups = board.dedicated.shape
    same = np.eye(queries, dtype=bool)
    for _ in range(most_steps):
        gains = board.gains()
        offered = np.where((board.free() > 0)[None, :], gains, -np.inf)
        best = int(offered.argmax())
        if offered.flat[best] > least:
            board.dedicate(*divmod(best, groups))
            continue
        losses = board.losses()
        # The best taker and the best giver of each group; where they are one, the runner-up of either.
        moved = gains[:, None, :] - losses[None, :, :]
        moved[same] = -np.inf
        swaps = board.swaps()
        exchanged = swaps[:, None] + np.swapaxes(swaps, 1, 2)[None]
        exchanged[same] = -np.inf
        move, exchange = int(moved.argmax()), int(exchanged.argmax())
        if max(moved.flat[move], exchanged.flat[exchange]) <= least:
            return
        if moved.flat[move] >= exchanged.flat[exchange]:
            taker, giver, g = np.unravel_index(move, moved.shape)
            board.dedicate(giver, g, -1)
            board.dedicate(taker, g)
        else:
            one, two, given, got = np.unravel_index(exchange, exchanged.shape)
            board.dedicate(one, given, -1)
            board.dedicate(two, given)
            board.dedicate(two, got, -1)
            board.dedicate(one, got)
