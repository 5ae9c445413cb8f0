"""Choose the slices of a shared device: at most one for each application.

A multiple-choice knapsack of slice budget, memory and residents: gains are exact for one slice an application, because
applications do not compete once the counts are given (see :mod:`.device_counts`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from .device_counts import DeviceCounts, SharedDevice
from .group_options import SliceTable
from .groups import IdenticalDevices
from .time_slices import slice_budget_s

#: Relative tolerance for sums of slices.
ROUNDING = 1e-9


def most_shared(counts: DeviceCounts, g: int, revisit_s: float) -> float:
    """Return an upper bound on the gain of any content.

    It is the gain of the whole slice budget at the best gain per time.
    """
    table = counts.options.slices(g, revisit_s)
    if not table.slices:
        return 0.0
    gain = _gains(counts, table)
    return max(0.0, float((gain / table.seconds).max()))


def _gains(counts: DeviceCounts, table: SliceTable) -> np.ndarray:
    return (counts.table[table.owner] + table.earns).min(axis=1) - counts.table.min(axis=1)[table.owner]


def best_shared(
    counts: DeviceCounts, g: int, revisit_s: float, only: Collection[str] | None = None
) -> tuple[float, SharedDevice | None]:
    """Return the best content found for one more shared device, and its gain.

    It is greedy by gain for the scarcest resource's share, or by gain alone; the better of the two.

    Args:
        g: the device's group.
        revisit_s: its revisit period, seconds.
        only: ids of the variants that it may hold; None: any.

    Returns:
        The gain, and the device; 0 and None where none gains.
    """
    table = counts.options.slices(g, revisit_s)
    max_resident = counts.options.groups[g].one.max_resident
    if not table.slices or max_resident == 1:
        # A single resident serves more on a dedicated device.
        return 0.0, None
    gain = _gains(counts, table)
    if only is not None:
        gain[[slice_.variant.id not in only for slice_ in table.slices]] = 0.0
    if gain.max() <= 0:
        return 0.0, None
    queries = len(counts.table)
    best: tuple[float, list[int]] = (0.0, [])
    for by_cost in (True, False):
        chosen = _greedy(table, gain, queries if max_resident is None else max_resident, queries, by_cost)
        value = float(gain[chosen].sum()) if chosen else 0.0
        if value > best[0]:
            best = (value, chosen)
    if not best[1]:
        return 0.0, None
    residents = tuple((int(table.owner[j]), table.slices[j], table.earns[j]) for j in best[1])
    return best[0], SharedDevice(g, revisit_s, residents)


def fits(device: SharedDevice, group: IdenticalDevices) -> bool:
    """Return whether the device's slices respect the limits of the group.

    These are the slice budget, the memory and the residents allowed of the group's devices.
    """
    slices, one = [slice_ for _, slice_, _ in device.residents], group.one
    return (
        sum(slice_.seconds for slice_ in slices) <= slice_budget_s(group, device.revisit_s) * (1 + ROUNDING)
        and (one.memory_bytes is None or sum(slice_.memory_bytes for slice_ in slices) <= one.memory_bytes)
        and (one.max_resident is None or len(slices) <= one.max_resident)
    )


def _greedy(table: SliceTable, gain: np.ndarray, max_resident: int, owners: int, by_cost: bool) -> list[int]:
    """Choose slices greedily.

    The best slice is taken, or exchanged for its application's, while any that gains fits.

    Returns:
        Indices of the slices.
    """
    owner, seconds, memory = table.owner, table.seconds, table.memory
    chosen = np.full(owners, -1)
    more, more_s, more_memory = gain.copy(), seconds.copy(), memory.copy()
    time_left, memory_left, residents = 1.0 + ROUNDING, 1.0, 0
    while True:
        fits = (more > 0) & (more_s <= time_left) & (more_memory <= memory_left)
        if residents >= max_resident:
            fits &= chosen[owner] >= 0
        # A slice that costs nothing more is taken at once.
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
