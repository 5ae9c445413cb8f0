"""Counts improved by exchanges of dedicated devices, the best one first; all of a kind are valued at once."""

from __future__ import annotations

import numpy as np

from .device_counts import Board

#: Devices of one group that one of another may be exchanged for where single ones bring nothing more: types differ in
#: speed by such factors.
MOST_FOR_ONE = 4


def climb(board: Board, least: float, enough: float = np.inf) -> None:
    """Improve the board while a change gains more than ``least``.

    Changes: a free device is dedicated; one goes from an application to another; two applications exchange a device of
    one group for one of another. Where none of these helps and the board is not worth ``enough`` yet also: one device
    is exchanged for several, and a device goes to an application that passes one of another group on to a third.
    """
    while True:
        if _use_free(board, least) or _move(board, least) or _exchange(board, least, 1):
            continue
        if board.value >= enough or not (_exchange(board, least, MOST_FOR_ONE) or _pass_on(board, least)):
            return


def _use_free(board: Board, least: float) -> bool:
    free = board.free()
    if not free.any():
        return False
    offered = np.where((free > 0)[None, :], board.gains(), -np.inf)
    best = int(offered.argmax())
    if offered.flat[best] <= least:
        return False
    board.dedicate(*divmod(best, len(free)))
    return True


def _move(board: Board, least: float) -> bool:
    """One device from an application to another."""
    gains, losses = board.gains(), board.losses()
    queries, groups = np.nonzero(board.dedicated)
    # Row: who gives; column: who gets.
    moved = gains[:, groups].T - losses[queries, groups][:, None]
    moved[np.arange(len(queries)), queries] = -np.inf
    best = int(moved.argmax()) if moved.size else 0
    if not moved.size or not moved.flat[best] > least:
        return False
    i, taker = divmod(best, moved.shape[1])
    giver, g = queries[i], groups[i]
    board.dedicate(giver, g, -1)
    board.dedicate(taker, g)
    return True


def _exchange(board: Board, least: float, most: int) -> bool:
    """One device of a group for one or several of another, between two applications."""
    queries, groups = np.nonzero(board.dedicated)
    same = queries[:, None] == queries[None, :]
    best, chosen = least, None
    for k in range(1, most + 1):
        # Row: who gives one and gets k; column: who gives k and gets one.
        one = board.trades(queries, groups, 1, k)[:, groups]
        several = board.trades(queries, groups, k, 1)[:, groups].T
        both = np.where(same, -np.inf, one + several)
        i = int(both.argmax()) if both.size else 0
        if both.size and both.flat[i] > best:
            best, chosen = both.flat[i], (k, *divmod(i, len(queries)))
    if chosen is None:
        return False
    k, i, j = chosen
    board.dedicate(queries[i], groups[i], -1)
    board.dedicate(queries[i], groups[j], k)
    board.dedicate(queries[j], groups[j], -k)
    board.dedicate(queries[j], groups[i])
    return True


def _pass_on(board: Board, least: float) -> bool:
    """One application gives a device to a second, which passes one of another group on to a third."""
    queries, groups = np.nonzero(board.dedicated)
    if len(board.dedicated) < 3 or not len(queries):
        return False
    passed = board.trades(queries, groups, 1, 1)
    gains, losses = board.gains(), board.losses()
    # Of the three best on either side one at least is neither the second nor on the other side.
    takers, givers = np.argsort(-gains, axis=0)[:3], np.argsort(losses, axis=0)[:3]
    others = np.arange(board.dedicated.shape[1])
    best, chosen = least, None
    for taker in takers:
        third = taker[groups][:, None]
        for giver in givers:
            first = giver[None, :]
            value = passed + gains[third, groups[:, None]] - losses[first, others[None, :]]
            distinct = (third != first) & (third != queries[:, None]) & (first != queries[:, None])
            value = np.where(distinct, value, -np.inf)
            i = int(value.argmax())
            if value.flat[i] > best:
                best, chosen = value.flat[i], (*divmod(i, len(others)), taker, giver)
    if chosen is None:
        return False
    i, h, taker, giver = chosen
    g = groups[i]
    board.dedicate(giver[h], h, -1)
    board.dedicate(queries[i], h)
    board.dedicate(queries[i], g, -1)
    board.dedicate(taker[g], g)
    return True
