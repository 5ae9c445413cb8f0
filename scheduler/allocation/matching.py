"""Matching of counted variants to concrete devices with the fewest loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .problem import DeviceResources


def keep_loaded(devices: Sequence[DeviceResources], counts: Mapping[str, int]) -> dict[str, str]:
    """Assign variants to devices so that the fewest have to be loaded.

    A device gets one variant at most: ``counts[m]`` devices get m.

    The devices differ only in what they have loaded, so the fewest loads are a maximum matching between devices and the
    copies of variants that they have loaded. Augmenting paths find it exactly (Berge: a matching without one is
    maximum); a greedy choice is not exact where a device has several variants loaded.

    Returns:
        Variant by device id; idle devices are absent.

    Raises:
        ValueError: the counts add up to more than ``len(devices)``.
    """
    copies = [variant for variant, count in counts.items() for _ in range(count)]
    if len(copies) > len(devices):
        raise ValueError(f"counts: {len(copies)} copies for {len(devices)} devices")
    host: list[int | None] = [None] * len(copies)
    wanted = [[c for c, variant in enumerate(copies) if variant in device.loaded] for device in devices]

    def augment(device: int, seen: set[int]) -> bool:
        # Free copies first: this keeps the recursion shallow where many devices have the same variants loaded.
        for copy in sorted(wanted[device], key=lambda c: host[c] is not None):
            if copy in seen:
                continue
            seen.add(copy)
            if host[copy] is None or augment(host[copy], seen):
                host[copy] = device
                return True
        return False

    for device in range(len(devices)):
        augment(device, set())
    keeping = {d for d in host if d is not None}
    # New variants go to devices with nothing loaded before those that would have to evict.
    free = sorted((d for d in range(len(devices)) if d not in keeping), key=lambda d: (len(devices[d].loaded), d))
    for copy, device in enumerate(host):
        if device is None:
            host[copy] = free.pop(0)
    return {devices[d].id: copies[c] for c, d in enumerate(host)}


def best_assignment(gain: Sequence[Sequence[float]]) -> list[int]:
    """Return the column for each row so that the gains add up to the most.

    The Hungarian method with potentials (Kuhn; Jonker and Volgenant's shortest augmenting paths), O(rows^2 * columns).

    Raises:
        ValueError: there are more rows than columns.
    """
    rows, columns = len(gain), len(gain[0]) if gain else 0
    if rows > columns:
        raise ValueError(f"gain: {rows} rows for {columns} columns")
    u, v = [0.0] * (rows + 1), [0.0] * (columns + 1)
    row_of, way = [0] * (columns + 1), [0] * (columns + 1)
    for i in range(1, rows + 1):
        row_of[0], column = i, 0
        least = [float("inf")] * (columns + 1)
        used = [False] * (columns + 1)
        while True:
            used[column] = True
            row, delta, following = row_of[column], float("inf"), 0
            for j in range(1, columns + 1):
                if used[j]:
                    continue
                reduced = -gain[row - 1][j - 1] - u[row] - v[j]
                if reduced < least[j]:
                    least[j], way[j] = reduced, column
                if least[j] < delta:
                    delta, following = least[j], j
            for j in range(columns + 1):
                if used[j]:
                    u[row_of[j]] += delta
                    v[j] -= delta
                else:
                    least[j] -= delta
            column = following
            if row_of[column] == 0:
                break
        while column:
            row_of[column] = row_of[way[column]]
            column = way[column]
    answer = [0] * rows
    for j in range(1, columns + 1):
        if row_of[j]:
            answer[row_of[j] - 1] = j - 1
    return answer
