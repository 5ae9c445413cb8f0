"""Use of variants: residents of the plan in force, and variants that devices hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from registry.models import Device, Node

#: set by the scheduler: yields the residents of the plan in force, as pairs of a device's ref and a variant's id
planned: list[Callable[[], Iterator[tuple[str, int]]]] = []


def warm_on(variants: Iterable[int]) -> dict[int, list[str]]:
    """Devices (refs, sorted) that can run each variant now, by variant id."""
    wanted = set(variants)
    found: dict[int, list[str]] = {}
    up = Device.objects.filter(node__state=Node.State.APPROVED, state=Device.State.UP).order_by("ref")
    for ref, warm in up.values_list("ref", "warm"):
        for variant in wanted.intersection(warm):
            found.setdefault(variant, []).append(ref)
    return found


def resident_on(variants: Iterable[int]) -> dict[int, list[str]]:
    """Devices (refs, sorted) that hold or are to hold each variant, by id.

    Without devices that are down (their executors are gone) or of revoked nodes.
    """
    wanted = set(variants)
    found: dict[int, set[str]] = {}
    for wants in planned:
        for ref, variant in wants():
            found.setdefault(variant, set()).add(ref)
    holding = Device.objects.filter(node__state=Node.State.APPROVED).exclude(state=Device.State.DOWN)
    for ref, warm in holding.values_list("ref", "warm"):
        for variant in warm:
            found.setdefault(variant, set()).add(ref)
    return {variant: sorted(refs) for variant, refs in found.items() if variant in wanted}
