"""Counts improved by exchanges of dedicated devices, the best one first; all of a kind are valued at once."""

from __future__ import annotations

import numpy as np

from .board import Board

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
    moved = board.gains()[:, None, :] - board.losses()[None, :, :]
    _forbid_same(moved)
    best = int(moved.argmax())
    if not moved.flat[best] > least:
        return False
    taker, giver, g = np.unravel_index(best, moved.shape)
    board.dedicate(giver, g, -1)
    board.dedicate(taker, g)
    return True


def _exchange(board: Board, least: float, most: int) -> bool:
    """One device of a group for one or several of another, between two applications."""
    given, got = board.swaps(most)
    best, chosen = least, None
    for k in range(most):
        both = given[k][:, None] + got[k][None]
        _forbid_same(both)
        i = int(both.argmax())
        if both.flat[i] > best:
            best, chosen = both.flat[i], (k + 1, *np.unravel_index(i, both.shape))
    if chosen is None:
        return False
    k, giver, taker, one, several = chosen
    board.dedicate(giver, one, -1)
    board.dedicate(giver, several, k)
    board.dedicate(taker, one)
    board.dedicate(taker, several, -k)
    return True


def _pass_on(board: Board, least: float) -> bool:
    """The first gives a device to the second, which passes one of another group on to the third."""
    queries, groups = board.dedicated.shape
    if queries < 3:
        return False
    gains, losses = board.gains(), board.losses()
    given, _ = board.swaps(1)
    # given[0][q, g, h]: the second gives one of g, which the third gets, and gets one of h, which the first gives.
    takers = np.argsort(-gains, axis=0)[:3]
    givers = np.argsort(losses, axis=0)[:3]
    best, chosen = least, None
    for q in range(queries):
        for g in range(groups):
            for h in range(groups):
                if g == h or given[0][q, g, h] == -np.inf:
                    continue
                for third in takers[:, g]:
                    for first in givers[:, h]:
                        if len({q, third, first}) == 3:
                            value = given[0][q, g, h] + gains[third, g] - losses[first, h]
                            if value > best:
                                best, chosen = value, (first, q, third, g, h)
    if chosen is None:
        return False
    first, second, third, g, h = chosen
    board.dedicate(first, h, -1)
    board.dedicate(second, h)
    board.dedicate(second, g, -1)
    board.dedicate(third, g)
    return True


def _forbid_same(pairs: np.ndarray) -> None:
    index = np.arange(len(pairs))
    pairs[index, index] = -np.inf
