"""Faults that nodes report. Synchronous.

A variant that keeps crashing is blocked, and one whose queries influence each other runs them alone from now on.
"""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from registry import services
from registry.models import Device, Fault, Node, Profile, Variant
from registry.text import storable
from scheduler.control.requests import request_plan
from workers import log
from workers.protocol import control

logger = log.get("faults")

#: number of crashes on a device type within WINDOW_S seconds that blocks a variant there
CRASHES, WINDOW_S = 5, 600
WINDOW = timedelta(seconds=WINDOW_S)
#: faults that are kept
KEPT = 1000


def record(node: Node, message: control.FaultReport) -> None:
    """Store a fault of one of the node's devices, unless device or variant is gone."""
    device = Device.objects.filter(node=node, ref=message.device).first()
    variant = Variant.objects.filter(pk=message.variant).select_related("application").first()
    if device is None or variant is None:
        return
    if message.cause == Fault.Cause.MIXED and variant.state == Variant.State.PROFILING:
        # Nobody has had an answer of it yet.
        services.run_alone(variant, storable(message.detail))
        return
    fault = Fault.objects.create(
        variant=variant,
        device=device.ref,
        device_type=device.type,
        cause=message.cause,
        detail=storable(message.detail),
    )
    oldest = Fault.objects.values_list("pk", flat=True)[KEPT : KEPT + 1].first()
    if oldest is not None:
        Fault.objects.filter(pk__lte=oldest).delete()
    logger.warning("fault", device=device.ref, variant=str(variant), cause=fault.cause, detail=fault.detail)
    if fault.cause == Fault.Cause.CRASHED:
        _block_if_frequent(variant, device.type)
    elif fault.cause == Fault.Cause.MIXED:
        services.run_alone(variant, fault.detail)


def _block_if_frequent(variant: Variant, device_type: str) -> None:
    now = timezone.now()
    crashes = Fault.objects.filter(
        variant=variant, device_type=device_type, cause=Fault.Cause.CRASHED, at__range=(now - WINDOW, now)
    ).count()
    if crashes < CRASHES:
        return
    latest = f"{now:%Y-%m-%d %H:%M} UTC"
    why = f"crashed {crashes} times within {WINDOW_S // 60} minutes, most recently at {latest}"
    if Profile.objects.filter(variant=variant, device_type=device_type, blocked="").update(blocked=why):
        logger.error("variant_blocked", variant=str(variant), device_type=device_type, crashes=crashes)
        request_plan("change", f"{variant} is blocked on {device_type}: it keeps crashing")
