"""Local search (hill climbing) over device counts.

The best exchange of dedicated devices comes first. All exchanges of one kind are valued at once, as arrays.
"""

from __future__ import annotations

import numpy as np

from .device_counts import DeviceCounts

#: Most devices of one group exchanged for one of another: device types differ in speed by such factors.
MOST_FOR_ONE = 4


def hill_climb(counts: DeviceCounts, min_gain: float, target: float = np.inf) -> None:
    """Improve the counts while a change gains more than ``min_gain``.

    Changes: dedicate a free device; move a device to another application; exchange a device of one group for one of
    another between two applications. Where none of these gains and the value is below ``target``: exchange one device
    for several; chain a device to a second application, which passes one of another group on to a third.
    """
    while True:
        if _use_free(counts, min_gain) or _move(counts, min_gain) or _exchange(counts, min_gain, 1):
            continue
        if counts.value >= target or not (_exchange(counts, min_gain, MOST_FOR_ONE) or _pass_on(counts, min_gain)):
            return


def _use_free(counts: DeviceCounts, min_gain: float) -> bool:
    free = counts.free()
    if not free.any():
        return False
    offered = np.where((free > 0)[None, :], counts.gains(), -np.inf)
    best = int(offered.argmax())
    if offered.flat[best] <= min_gain:
        return False
    counts.dedicate(*divmod(best, len(free)))
    return True


def _move(counts: DeviceCounts, min_gain: float) -> bool:
    """One device from an application to another."""
    gains, losses = counts.gains(), counts.losses()
    queries, groups = np.nonzero(counts.dedicated)
    # Row: the application that gives; column: the one that receives.
    moved = gains[:, groups].T - losses[queries, groups][:, None]
    moved[np.arange(len(queries)), queries] = -np.inf
    best = int(moved.argmax()) if moved.size else 0
    if not moved.size or not moved.flat[best] > min_gain:
        return False
    i, taker = divmod(best, moved.shape[1])
    giver, g = queries[i], groups[i]
    counts.dedicate(giver, g, -1)
    counts.dedicate(taker, g)
    return True


def _exchange(counts: DeviceCounts, min_gain: float, most: int) -> bool:
    """One device of a group for one or several of another, between two applications."""
    queries, groups = np.nonzero(counts.dedicated)
    same = queries[:, None] == queries[None, :]
    best, chosen = min_gain, None
    for k in range(1, most + 1):
        # Row: gives one device for k; column: gives k for one.
        one = counts.exchange_gains(queries, groups, 1, k)[:, groups]
        several = counts.exchange_gains(queries, groups, k, 1)[:, groups].T
        both = np.where(same, -np.inf, one + several)
        i = int(both.argmax()) if both.size else 0
        if both.size and both.flat[i] > best:
            best, chosen = both.flat[i], (k, *divmod(i, len(queries)))
    if chosen is None:
        return False
    k, i, j = chosen
    counts.dedicate(queries[i], groups[i], -1)
    counts.dedicate(queries[i], groups[j], k)
    counts.dedicate(queries[j], groups[j], -k)
    counts.dedicate(queries[j], groups[i])
    return True


def _pass_on(counts: DeviceCounts, min_gain: float) -> bool:
    """Move devices along a chain of three applications.

    One application gives a device to a second, which passes one of another group on to a third.

    Returns:
        Whether a chain gained more than ``min_gain``.
    """
    queries, groups = np.nonzero(counts.dedicated)
    if len(counts.dedicated) < 3 or not len(queries):
        return False
    passed = counts.exchange_gains(queries, groups, 1, 1)
    gains, losses = counts.gains(), counts.losses()
    # Three candidates a side suffice: the three applications of a chain must differ.
    takers, givers = np.argsort(-gains, axis=0)[:3], np.argsort(losses, axis=0)[:3]
    others = np.arange(counts.dedicated.shape[1])
    best, chosen = min_gain, None
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
    counts.dedicate(giver[h], h, -1)
    counts.dedicate(queries[i], h)
    counts.dedicate(queries[i], g, -1)
    counts.dedicate(taker[g], g)
    return True
