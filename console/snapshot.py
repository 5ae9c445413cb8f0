"""The state as of now, for a browser that just connected; events then keep it current."""

from __future__ import annotations

import time
from typing import Any

from registry.models import Application, Device, Gateway, Node, ProfileJob, Variant
from scheduler import plans
from scheduler.models import Plan


def snapshot() -> dict[str, Any]:
    """Everything that the live page shows besides per-second figures.

    ``now``: unix seconds of this box. ``plan``: the newest plan as a ``plan`` event, or None. ``jobs``: open profile
    jobs as ``profile`` events.
    """
    latest = Plan.objects.first()
    jobs = ProfileJob.objects.select_related("variant__application").filter(state__in=["queued", "running"])
    return {
        "now": time.time(),
        "applications": list(Application.objects.values("name", "group", "slo_ms", "state")),
        "variants": [_variant(item) for item in Variant.objects.select_related("application")],
        "nodes": [_member(item) for item in Node.objects.all()],
        "gateways": [_member(item) for item in Gateway.objects.all()],
        "devices": [_device(item) for item in Device.objects.select_related("node")],
        "plan": plans.event(latest) if latest else None,
        "jobs": [_job(item) for item in jobs],
    }


def _variant(variant: Variant) -> dict[str, Any]:
    return {
        "id": variant.pk,
        "name": variant.name,
        "application": variant.application.name,
        "accuracy": variant.accuracy,
        "state": variant.state,
    }


def _member(member: Node | Gateway) -> dict[str, Any]:
    return {
        "name": member.name,
        "state": member.state,
        "connected": member.connected,
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "ref": device.ref,
        "node": device.node.name,
        "type": device.type,
        "memory_bytes": device.memory_bytes,
        "state": device.state,
        "detail": device.detail,
        "warm": device.warm,
    }


def _job(job: ProfileJob) -> dict[str, Any]:
    return {
        "job": job.pk,
        "variant": job.variant_id,
        "application": job.variant.application.name,
        "variant_name": job.variant.name,
        "device_type": job.device_type,
        "state": job.state,
        "phase": job.phase,
        "progress": job.progress,
        "points": [],
        "detail": job.detail,
    }
