"""Devices that the counts strand are shared: exchanges of a device's whole use for the best other one."""

from __future__ import annotations

from collections.abc import Sequence

from .board import Board, Shared, climb
from .knapsack import best_shared


def fill(board: Board, gaps: Sequence[float], least: float) -> None:
    """Give each free device the use that gains most, until none gains more than ``least``."""
    free = board.free()
    while True:
        best, chosen = least, None
        for g in range(len(free)):
            if free[g] <= 0:
                continue
            gain, use = best_use(board, g, gaps)
            if gain > best:
                best, chosen = gain, (g, use)
        if chosen is None:
            return
        apply(board, *chosen)
        free[chosen[0]] -= 1


def best_use(board: Board, g: int, gaps: Sequence[float]) -> tuple[float, int | Shared | None]:
    """What one more device of group ``g`` should do: an application to be dedicated to, or a content to share."""
    gains = board.gains()[:, g]
    q = int(gains.argmax())
    best, use = float(gains[q]), q
    for gap_s in gaps:
        gain, shared = best_shared(board, g, gap_s)
        if shared is not None and gain > best + 1e-12 * abs(best):
            best, use = gain, shared
    return best, use


def apply(board: Board, g: int, use: int | Shared) -> None:
    if isinstance(use, Shared):
        board.share(use)
    else:
        board.dedicate(use, g)


def refine(board: Board, gaps: Sequence[float], least: float, most_rounds: int = 20) -> None:
    """Take each kind of device out in turn and put the best use for it back, until a round brings nothing."""
    for _ in range(most_rounds):
        before = board.value
        for g in range(len(board.sizes)):
            for q in range(len(board.dedicated)):
                if board.dedicated[q, g]:
                    _exchange(board, g, q, gaps, least)
        for i in range(len(board.shared) - 1, -1, -1):
            _exchange_shared(board, i, gaps, least)
        climb(board, least)
        if board.value - before <= least:
            return


def _exchange(board: Board, g: int, q: int, gaps: Sequence[float], least: float) -> None:
    before = board.value
    board.dedicate(q, g, -1)
    _, use = best_use(board, g, gaps)
    apply(board, g, use)
    if board.value - before <= least:
        _take_back(board, g, use)
        board.dedicate(q, g)


def _exchange_shared(board: Board, i: int, gaps: Sequence[float], least: float) -> None:
    before = board.value
    device = board.unshare(i)
    _, use = best_use(board, device.group, gaps)
    apply(board, device.group, use)
    if board.value - before <= least:
        _take_back(board, device.group, use)
        board.share(device)


def _take_back(board: Board, g: int, use: int | Shared) -> None:
    if isinstance(use, Shared):
        board.unshare(len(board.shared) - 1)
    else:
        board.dedicate(use, g, -1)
