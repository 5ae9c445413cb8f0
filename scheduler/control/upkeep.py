"""Periodic upkeep of plans, devices and members' state."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from registry.models import Device, Gateway, Member, Node
from scheduler.control.assemble import available_devices
from scheduler.control.requests import request_plan
from scheduler.members.presence import silence_counts
from scheduler.models import Plan

#: plans kept for the console's history: at one every 30 s, a day and a half, more when quiet
KEEP_PLANS = 5000
LOST_S = 60


def replan_if_devices_changed() -> bool:
    """Request a plan if the available devices are not those of the plan in force (a node fell silent, for example)."""
    latest = Plan.objects.only("problem").first()
    if latest is None:
        return False
    planned = {device["id"] for device in latest.problem["devices"]}
    available = {device.ref for device in available_devices()}
    if not available or planned == available:
        return False
    gone, new = sorted(planned - available), sorted(available - planned)
    detail = "; ".join(
        part for part in (f"gone: {', '.join(gone)}" if gone else "", f"new: {', '.join(new)}" if new else "") if part
    )
    return request_plan("change", detail)


def write_off_silent_devices() -> int:
    """Mark devices of silent nodes as down, with nothing loaded. A node that returns reports their state anew."""
    if not silence_counts():
        return 0
    limit = timezone.now() - timedelta(seconds=LOST_S)
    for kind in (Node, Gateway):
        # Connections that ended without a close message (web was killed, for example).
        silent = kind.objects.filter(state=Member.State.APPROVED, last_seen__lt=limit).exclude(channel="")
        silent.update(channel="")
    lost = Device.objects.filter(node__last_seen__lt=limit).exclude(state=Device.State.DOWN)
    return lost.update(state=Device.State.DOWN, warm=[], detail="the node has sent nothing for a minute")


def forget_old_plans() -> None:
    newest_to_forget = Plan.objects.order_by("-id").values_list("pk", flat=True)[KEEP_PLANS : KEEP_PLANS + 1].first()
    if newest_to_forget is not None:
        Plan.objects.filter(pk__lte=newest_to_forget).delete()
