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
