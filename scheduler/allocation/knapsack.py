"""What a shared device should hold: one turn at most of each application, within its cycle, memory and residents.

A multiple-choice knapsack: gains are exact for one turn an application, because applications do not compete once the
counts are given (see :mod:`.device_counts`).
"""

from __future__ import annotations

import numpy as np

from .device_counts import Board, Shared
from .device_options import TurnTable


def most_shared(board: Board, g: int, gap_s: float) -> float:
    """A bound on what any content gains: the whole cycle at the best turn's gain for its time."""
    options = board.menu.turns(g, gap_s)
    if not options.turns:
        return 0.0
    gain = _gains(board, options)
    return max(0.0, float((gain / options.seconds).max()))


def _gains(board: Board, options: TurnTable) -> np.ndarray:
    return (board.table[options.owner] + options.earns).min(axis=1) - board.table.min(axis=1)[options.owner]


def best_shared(board: Board, g: int, gap_s: float) -> tuple[float, Shared | None]:
    """The best content found for one more shared device of the group and class, and what it gains.

    Greedy by gain for the scarcest resource's share, and by gain alone; the better of the two.
    """
    options = board.menu.turns(g, gap_s)
    room = board.menu.groups[g].one.max_resident
    if not options.turns or room == 1:
        # A single resident does more on a dedicated device.
        return 0.0, None
    gain = _gains(board, options)
    if gain.max() <= 0:
        return 0.0, None
    queries = len(board.table)
    best: tuple[float, list[int]] = (0.0, [])
    for by_cost in (True, False):
        chosen = _greedy(options, gain, queries if room is None else room, queries, by_cost)
        value = float(gain[chosen].sum()) if chosen else 0.0
        if value > best[0]:
            best = (value, chosen)
    if not best[1]:
        return 0.0, None
    residents = tuple((int(options.owner[j]), options.turns[j], options.earns[j]) for j in best[1])
    return best[0], Shared(g, gap_s, residents)


def _greedy(options: TurnTable, gain: np.ndarray, room: int, owners: int, by_cost: bool) -> list[int]:
    """Indices of turns: the best is taken, or exchanged for the one of its application, while anything better fits."""
    owner, seconds, memory = options.owner, options.seconds, options.memory
    chosen = np.full(owners, -1)
    more, more_s, more_memory = gain.copy(), seconds.copy(), memory.copy()
    time_left, memory_left, residents = 1.0 + 1e-9, 1.0, 0
    while True:
        fits = (more > 0) & (more_s <= time_left) & (more_memory <= memory_left)
        if residents >= room:
            fits &= chosen[owner] >= 0
        # What costs nothing more is taken at once.
        score = more / np.maximum(np.maximum(more_s, more_memory), 1e-6) if by_cost else more
        score = np.where(fits, score, -1.0)
        j = int(score.argmax())
        if score[j] < 0:
            return [int(c) for c in chosen if c >= 0]
        i = owner[j]
        residents += chosen[i] < 0
        chosen[i] = j
        time_left -= more_s[j]
        memory_left -= more_memory[j]
        mine = owner == i
        more[mine] = gain[mine] - gain[j]
        more_s[mine] = seconds[mine] - seconds[j]
        more_memory[mine] = memory[mine] - memory[j]
