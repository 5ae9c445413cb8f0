"""Periodic upkeep of devices and members' state."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q
from django.utils import timezone

from registry import clock
from registry.members import lapse, uncordon
from registry.models import Device, Gateway, Member, Node
from scheduler.control.assemble import available_devices
from scheduler.control.requests import request_plan
from scheduler.models import Plan
from scheduler.presence import silence_counts
from scheduler.words import devices, listed

#: seconds without a message after which a node's devices count as lost
LOST_S = 60


def replan_if_devices_changed() -> bool:
    latest = Plan.objects.only("inputs").first()
    if latest is None:
        return False
    planned = {device["id"] for device in latest.inputs.get("devices") or ()}
    available = {device.ref for device in available_devices()}
    if not available or planned == available:
        return False
    gone, new = sorted(planned - available), sorted(available - planned)
    left = [f"{devices(gone)} left"] if gone else []
    joined = [f"{devices(new)} joined"] if new else []
    detail = "; ".join([*left, *joined])
    return request_plan("change", detail)


def plan_with(came: Sequence[str]) -> None:
    """Request a plan for devices that came up.

    Without any, as when members joined: where the plan in force has others than there are.
    """
    if came:
        request_plan("change", f"{'device' if len(came) == 1 else 'devices'} came up: {listed(came)}")
    else:
        replan_if_devices_changed()


def write_off_silent_devices() -> int:
    """Mark devices of silent nodes as down, with nothing loaded; how many."""
    if not silence_counts():
        return 0
    now = clock.steady()
    for kind in (Node, Gateway):
        # Connections that ended without a close message (web was killed, for example).
        silent = kind.objects.filter(_silent("", now), state=Member.State.APPROVED).exclude(channel="")
        silent.update(channel="")
    lost = Device.objects.filter(_silent("node__", now)).exclude(state=Device.State.DOWN)
    detail = "the node has sent nothing for a minute"
    return lost.update(state=Device.State.DOWN, warm=[], detail=detail, changed=timezone.now())


def lapse_ended_certificates() -> int:
    """Take members whose certificates have ended off the others' peers; how many.

    The certificates ended while the members were away. One that is connected is asked to renew instead, since a clock
    that was set ends all certificates at once.
    """
    if not silence_counts():
        return 0
    # After a short restart of web all members are away, and reconnect within seconds.
    lapsed, silent = 0, _silent("", clock.steady())
    for kind in (Node, Gateway):
        ended = kind.objects.filter(
            silent, state=Member.State.APPROVED, certificate_lapsed=False, certificate_until__lt=timezone.now()
        )
        lapsed += sum(map(lapse, ended))
    return lapsed


def end_cordons() -> int:
    ended = list(Node.objects.filter(cordoned_until__lt=timezone.now()))
    for node in ended:
        uncordon(node)
    return len(ended)


def _silent(member: str, now: float) -> Q:
    seen = f"{member}seen_s"
    earlier_boot = Q(**{f"{seen}__gt": now + clock.AHEAD_S})
    return Q(**{f"{seen}__isnull": True}) | Q(**{f"{seen}__lt": now - LOST_S}) | earlier_boot
