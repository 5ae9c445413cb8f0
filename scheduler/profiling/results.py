"""Devices' reports on profile jobs: progress, results, failures, drift. Synchronous."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from django.db import transaction
from django.utils import timezone

from registry import events
from registry.models import Device, Node, Profile, ProfileJob, ProfileLatency, Variant
from registry.profiling import order
from registry.text import storable
from scheduler import live, queue, telemetry
from scheduler.control.requests import request_plan
from workers import log
from workers.protocol import control
from workers.protocol.specs import ProfilePoint

logger = log.get("profiling")

#: a variant is not measured again for drift more often
DRIFT_PAUSE_S = 300
#: seconds in which other devices show how they run a variant, and the observed over the profiled run time up to which
#: that is as profiled
OBSERVED_S, AS_PROFILED = 10, 1.2
#: attempts of a job before it fails
MAX_ATTEMPTS = 3


def announce(job: ProfileJob, points: tuple[ProfilePoint, ...] = ()) -> None:
    live.publish(
        "profile",
        {
            "job": job.pk,
            "variant": job.variant_id,
            "variant_name": job.variant.name,
            "application": job.variant.application.name,
            "device_type": job.device_type,
            "state": job.state,
            "phase": job.phase,
            "progress": job.progress,
            "points": [msgspec.to_builtins(point) for point in points],
            "detail": job.detail,
        },
    )


def _running(node: Node, pk: int) -> ProfileJob | None:
    return (
        ProfileJob.objects.filter(pk=pk, state="running", device__node=node)
        .select_related("variant__application", "device")
        .first()
    )


def _measured(node: Node, pk: int) -> ProfileJob | None:
    """The job that a node has a result of: that runs there, or was queued again since."""
    again = ProfileJob.objects.filter(
        pk=pk, state="queued", attempts__gt=0, device_type__in=node.devices.values("type")
    ).select_related("variant__application", "device")
    return _running(node, pk) or again.first()


def progress(node: Node, message: control.ProfileProgress) -> None:
    job = _running(node, message.job)
    if job is None:
        return
    job.phase, job.progress, job.heard = storable(message.phase, 12), message.done, timezone.now()
    ProfileJob.objects.filter(pk=job.pk, state="running").update(
        phase=job.phase, progress=job.progress, heard=job.heard
    )
    announce(job, message.points)


def done(node: Node, message: control.ProfileDone) -> None:
    """Store the profile, and the accuracy where it was measured.

    The variant is ready if its application is answered already, else once gateways say that it is
    (:mod:`scheduler.control.readiness`). Nodes repeat results until the job is no longer theirs; the second time does
    nothing.
    """
    job = _measured(node, message.job)
    if job is None:
        return
    if not message.points:
        give_up_or_retry(job, "no batch size could be measured", retry=False)
        return
    with transaction.atomic():
        if not ProfileJob.objects.filter(pk=job.pk, state=job.state).update(
            state="done", phase="", progress=1.0, finished=timezone.now(), detail=""
        ):
            return
        profile, _ = Profile.objects.update_or_create(
            variant=job.variant,
            device_type=job.device_type,
            # Profiling a blocked variant again lifts the block.
            defaults={"load_s": message.load_s, "memory_bytes": message.memory_bytes, "blocked": ""},
        )
        profile.latencies.all().delete()
        ProfileLatency.objects.bulk_create(
            ProfileLatency(
                profile=profile,
                size=point.size,
                batch=point.batch,
                p50_ms=point.p50_s * 1000,
                p95_ms=point.p95_s * 1000,
                mean_ms=point.mean_s * 1000,
                samples=point.samples,
            )
            for point in message.points
        )
        if message.accuracy is not None:
            # Not over an accuracy that its owner declared meanwhile.
            measured = Variant.objects.filter(pk=job.variant_id, accuracy_source=Variant.Source.MEASURED)
            measured.update(accuracy=message.accuracy)
        answered = Variant.objects.filter(application=job.variant.application_id, state=Variant.State.READY).exists()
        # A variant that is leaving (draining) or that has no accuracy does not become ready.
        Variant.objects.filter(
            pk=job.variant_id, state__in=[Variant.State.PROFILING, Variant.State.FAILED], accuracy__isnull=False
        ).update(
            state=Variant.State.READY if answered else Variant.State.LOADING,
            detail="" if answered else "devices load it now; it is ready by itself once gateways answer with it",
        )
        # The request below says more than the event would, and one is enough.
        events.changed("variant", str(job.variant), replan=False)
    job.refresh_from_db()
    logger.info("profile_done", job=job.pk, variant=str(job.variant), device_type=job.device_type)
    announce(job, message.points)
    if job.variant.state in Variant.PLANNED:
        request_plan("change", f"{job.variant} was profiled on {job.device_type}")
    order_next()


def failed(node: Node, message: control.ProfileFailed) -> None:
    """Order the job again, or give it up; failures of earlier attempts say nothing."""
    job = _running(node, message.job)
    if job is not None and message.attempt in (0, job.attempts):
        give_up_or_retry(job, storable(message.message), message.retry)
        order_next()


def give_up_or_retry(job: ProfileJob, why: str, retry: bool) -> None:
    """Queue it again, or fail it, and with it a variant that has no profile at all."""
    again = retry and job.attempts < MAX_ATTEMPTS
    with transaction.atomic():
        if not ProfileJob.objects.filter(pk=job.pk, state="running").update(
            state="queued" if again else "failed",
            device=job.device if not again else None,
            detail=why[:2000],
            finished=None if again else timezone.now(),
        ):
            return
        if not again and not Profile.objects.filter(variant=job.variant).exists():
            Variant.objects.filter(pk=job.variant_id, state=Variant.State.PROFILING).update(
                state=Variant.State.FAILED, detail=why[:2000]
            )
        events.changed("variant", str(job.variant), replan=False)
    job.refresh_from_db()
    logger.warning("profile_failed", job=job.pk, variant=str(job.variant), detail=why, again=again)
    announce(job)


def drifted(node: Node, message: control.Drift) -> None:
    device = Device.objects.filter(node=node, ref=message.device).first()
    variant = Variant.objects.filter(pk=message.variant, state__in=Variant.PLANNED).first()
    if device is None or variant is None:
        return
    profile = Profile.objects.filter(variant=variant, device_type=device.type).first()
    # A profile of the future was measured before the clock was set back.
    pause = timedelta(seconds=DRIFT_PAUSE_S)
    if profile is None or timedelta(0) <= timezone.now() - profile.measured < pause:
        return
    if _slow(device, variant):
        return
    logger.info("drift", device=device.ref, variant=str(variant), ratio=round(message.ratio, 2))
    if order(variant, ProfileJob.Reason.DRIFT, [device.type]):
        order_next()


def _slow(device: Device, variant: Variant) -> bool:
    """Whether the device is slow, not the profile wrong.

    Others of the type show it that run the variant as profiled; where none runs it, others that run anything so, unless
    the device does, too.
    """
    others = set(Device.objects.filter(type=device.type).exclude(pk=device.pk).values_list("ref", flat=True))
    ratios = {
        (stats["device"], ran["variant"]): ran["drift"]
        for second in telemetry.node_seconds(OBSERVED_S)
        for stats in second["devices"]
        for ran in stats.get("variants", ())
        if ran.get("drift")
    }
    same = [ratio for (ref, ran), ratio in ratios.items() if ref in others and ran == variant.pk]
    if same:
        return min(same) <= AS_PROFILED
    as_profiled = {ref for (ref, ran), ratio in ratios.items() if ran != variant.pk and ratio <= AS_PROFILED}
    return bool(as_profiled & others) and device.ref not in as_profiled


def order_next() -> None:
    queue.send("scheduler.dispatch_profiles")
