"""Residents of the plan in force."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.models import Plan


def in_force() -> Iterator[tuple[str, int]]:
    """Pairs of a device's ref and a variant's id."""
    wire = Plan.objects.order_by("-id").values_list("wire", flat=True).first() or {}
    for device in wire.get("devices", ()):
        for resident in device.get("residents", ()):
            yield device["device"], resident["variant"]["id"]
