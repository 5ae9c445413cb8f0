"""Devices that no gateway's core reaches.

Gateways' reports of each second, and the decision on them. A firewall, or a division of the network, between gateways
and a node leaves both connected to the control plane. Plans name such a device with nothing to run, so that cores go on
trying to connect, and its return is noticed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta

from django.utils import timezone

from registry import clock, reach
from registry.models import Device, Gateway, Member
from scheduler import live
from scheduler.control.upkeep import replan_if_devices_changed
from scheduler.presence import silence_counts, silent_s
from workers import log
from workers.protocol.specs import Reach

logger = log.get("members")

#: seconds for which no core must have reached a device before plans leave it out. An executor that restarts is back
#: within a second or two, and a core tries again each second; a plan is to follow a lost box within 5 s and some
PATIENCE_S = 4.0
#: seconds of silence of a node after which a core that lost its devices is believed at once. Nodes send statistics each
#: second, so that one of them may be late or lost
SILENCE_S = 2.5


def cut_off(was: bool, views: Sequence[reach.Reported], serving_s: float, silent_for_s: float = 0.0) -> bool:
    """Whether plans leave a device out since no core reaches it. Pure.

    Any core may come to lead, so one that reaches the device is enough. Without any gateway nothing changes. A core
    that loses a device whose node is silent, too, is believed at once; otherwise the device has time to come back.

    Args:
        was: it is left out so far; then somebody has to reach it first.
        serving_s: seconds since the device began to serve.
        silent_for_s: seconds since its node sent anything.
    """
    if not views:
        return was
    if any(view.reached for view in views):
        return False
    if was:
        return True
    if any(view.announced and view.reached is None for view in views):
        return False
    unreached = [view for view in views if view.reached is False]
    silent = silent_for_s >= SILENCE_S
    # A device that does not serve is left out for that reason.
    if not unreached or serving_s < (SILENCE_S if silent else PATIENCE_S):
        return False
    return all(view.unreached_s >= PATIENCE_S or (silent and view.lost) for view in unreached)


def mark(found: Reach | None) -> tuple[frozenset[str], ...]:
    """What a report says; one that says the same need not be stored again."""
    if found is None:
        return ()
    over = frozenset(device for device, seconds in found.unreached.items() if seconds >= PATIENCE_S)
    return frozenset(found.reached), frozenset(found.unreached), over


def undecided(found: Reach | None) -> bool:
    """Whether a device that a gateway does not reach still has time to come back."""
    return found is not None and any(seconds < PATIENCE_S for seconds in found.unreached.values())


def joined(gateway: int) -> None:
    """A gateway joined: what it reported before it was away says nothing about now."""
    Gateway.objects.filter(pk=gateway).update(reach={})


def report(gateway: int, found: Reach | None) -> None:
    stored = None
    row = Gateway.objects.filter(pk=gateway)
    if found is not None:
        known, now = set(Device.objects.values_list("ref", flat=True)), clock.steady()
        before = row.values_list("reach", flat=True).first() or {}
        had = {*before.get("reached", ()), *before.get("lost", ())}
        stored = {
            "reached": [ref for ref in found.reached if ref in known],
            "unreached": {ref: clock.stamp(now - age) for ref, age in found.unreached.items() if ref in known},
            "lost": [ref for ref in found.unreached if ref in known and ref in had],
        }
    row.update(reach=stored)
    look()


def look() -> None:
    """Decide which devices are cut off, and request a plan where that has changed."""
    if judge():
        replan_if_devices_changed()


def judge() -> bool:
    gateways = reach.approved_gateways()
    connected = [gateway for gateway in gateways if gateway.connected]
    # After an absence of the control plane, gateways that are not back yet may reach what others do not.
    all_there = len(connected) == len(gateways) or silence_counts()
    lost, found = [], []
    devices = list(Device.objects.filter(node__state=Member.State.APPROVED).select_related("node"))
    silent = silent_s({device.node_id for device in devices})
    for device in devices:
        was = device.unreached_since is not None
        views = [reach.reported(gateway, device) for gateway in connected]
        now = cut_off(was, views, _serving_s(device), silent[device.node_id])
        if now and not was and all_there:
            age_s = min(view.unreached_s for view in views if view.reached is False)
            _set(device, age_s)
            lost.append(device.ref)
        elif was and not now:
            _set(device, None)
            found.append(device.ref)
    if lost:
        logger.warning("devices_unreached", devices=lost)
    if found:
        logger.info("devices_reached", devices=found)
    if lost or found:
        live.publish("changed", {"kind": "device", "ref": (lost + found)[0]})
    return bool(lost or found)


def _serving_s(device: Device) -> float:
    if device.state not in Device.SERVING:
        return 0.0
    age_s = math.inf if device.serving_s is None else clock.steady() - device.serving_s
    # Else of an earlier boot.
    return age_s if age_s >= 0.0 else math.inf


def _set(device: Device, age_s: float | None) -> None:
    since = None if age_s is None else timezone.now() - timedelta(seconds=min(age_s, clock.steady()))
    Device.objects.filter(pk=device.pk).update(unreached_since=since)
