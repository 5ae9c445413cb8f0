"""Variants worth standing by on a kind of device: a frontier of accuracy and speed, up to the SLO itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .problem import Application, Device, Variant


@dataclass(frozen=True, slots=True, eq=False)
class Spare:
    """A variant that may stand by on devices of one group. ``rate``: items/s at the fastest batch within the SLO."""

    variant: Variant
    batch: int
    rate: float
    memory_bytes: int
    load_s: float


def spares(application: Application, variants: Iterable[Variant], device: Device) -> tuple[Spare, ...]:
    """The application's variants worth standing by on such devices, most accurate and slowest first: no other is both
    as accurate and as fast. Batches are the fastest within SLO / 2, or, where none is, within the SLO."""
    found = []
    for variant in variants:
        profile = variant.profiles.get(device.type)
        if profile is None or (device.memory_bytes is not None and profile.memory_bytes > device.memory_bytes):
            continue
        for limit_s in (application.slo_s / 2, application.slo_s):
            batches = [(b / s, -b) for b, s in profile.points if s <= limit_s]
            if batches:
                rate, batch = max(batches)
                found.append(Spare(variant, -batch, rate, profile.memory_bytes, profile.load_s))
                break
    found.sort(key=lambda s: (-s.variant.accuracy, -s.rate))
    useful: list[Spare] = []
    for spare in found:
        if not useful or spare.rate > useful[-1].rate:
            useful.append(spare)
    return tuple(useful)
