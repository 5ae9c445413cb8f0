"""The states of all instances.

They follow from what devices hold, what ran recently, and what was profiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from registry.models import Device, Node, Profile, Variant
from scheduler import telemetry
from scheduler.allocation.capacity import dedicated_capacity
from scheduler.control import sizes
from scheduler.control.wire import points_of
from workers.dispatch.instance_states import InstanceState, instance_state

#: seconds of devices' reports that a state is judged by
WINDOW_S = 10


class Observed(NamedTuple):
    """Rows/s, observed over profiled run time (0: none), and seconds of a batch."""

    rate: float = 0.0
    ratio: float = 0.0
    run_s: float = 0.0


@dataclass(frozen=True)
class Instance:
    """A variant on a device, or one that no device holds.

    Attributes:
        device: ref; empty: it is loaded nowhere.
        rate: rows/s that it served recently.
        capacity: rows/s that its profile promises for it alone on the device; 0: unknown.
        load: share of the device's time that all its rates take at their capacities.
        ratio: observed over profiled run time; 0: nothing observed.
    """

    device: str
    device_type: str
    variant: Variant
    state: InstanceState
    rate: float = 0.0
    capacity: float = 0.0
    load: float = 0.0
    ratio: float = 0.0


def instances(variants: Iterable[Variant] | None = None) -> list[Instance]:
    """Return all instances by device and variant, then the inactive variants.

    No device holds these.

    Args:
        variants: those to look at, with their applications; None: all that are planned for. Loads count the others.
    """
    devices = list(Device.objects.filter(node__state=Node.State.APPROVED, state=Device.State.UP).order_by("ref"))
    warm = {pk for device in devices for pk in device.warm}
    known = {v.pk: v for v in Variant.objects.filter(pk__in=warm).select_related("application")}
    if variants is None:
        variants = Variant.objects.filter(state__in=Variant.PLANNED).select_related("application")
    chosen = {variant.pk: variant for variant in variants}
    try:
        observed = observations(telemetry.node_seconds(WINDOW_S))
    except RedisError:
        # Pages are read while Redis is away, too; there are no figures then.
        observed = {}
    capacities = _capacities(warm, known)
    found = []
    for device in devices:
        rows = [
            (pk, observed.get((device.ref, pk), Observed()), capacities.get((pk, device.type), 0.0))
            for pk in sorted(device.warm)
        ]
        load = sum(seen.rate / capacity for _, seen, capacity in rows if capacity > 0)
        for pk, seen, capacity in rows:
            if (variant := chosen.get(pk)) is not None:
                state = instance_state(True, load, seen.ratio, seen.run_s)
                found.append(Instance(device.ref, device.type, variant, state, seen.rate, capacity, load, seen.ratio))
    idle = [variant for pk, variant in chosen.items() if pk not in warm]
    return found + [Instance("", "", variant, InstanceState.INACTIVE) for variant in idle]


def observations(entries: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], Observed]:
    seconds: dict[str, int] = {}
    rows: dict[tuple[str, int], float] = {}
    batches: dict[tuple[str, int], int] = {}
    busy_s: dict[tuple[str, int], float] = {}
    ratio: dict[tuple[str, int], float] = {}
    for entry in entries:
        for device in entry["devices"]:
            ref = device["device"]
            seconds[ref] = seconds.get(ref, 0) + 1
            for one in device.get("variants", ()):
                key = ref, one["variant"]
                rows[key] = rows.get(key, 0) + one["rows"]
                batches[key] = batches.get(key, 0) + one["batches"]
                busy_s[key] = busy_s.get(key, 0.0) + one["busy_s"]
                ratio[key] = one.get("drift") or ratio.get(key, 0.0)
    return {
        key: Observed(count / seconds[key[0]], ratio[key], busy_s[key] / max(batches[key], 1))
        for key, count in rows.items()
    }


def _capacities(warm: set[int], known: Mapping[int, Variant]) -> dict[tuple[int, str], float]:
    found = {}
    known_points = points_of(warm)
    for profile in Profile.objects.filter(variant__in=warm):
        points = known_points.get(profile.pk, ())
        if not points or profile.variant_id not in known:
            continue
        measured = sizes.profile(points, sizes.ANY)
        capacity = dedicated_capacity(measured, known[profile.variant_id].application.slo_ms / 1000)
        if capacity is not None:
            found[profile.variant_id, profile.device_type] = capacity.rate
        elif measured.points:
            # Too slow for the SLO: it is not planned, and may be loaded until the next plan.
            batch, latency_s = measured.points[0]
            found[profile.variant_id, profile.device_type] = batch / latency_s
    return found
