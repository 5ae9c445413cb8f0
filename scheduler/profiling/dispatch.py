"""Hands queued profile jobs to devices: one job at a time a device, oldest first.

Jobs that people wait for, as after an upload, go before those for drift, and take their devices.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import Case, F, Q, QuerySet, When
from django.utils import timezone

from registry import clock
from registry.models import FRESH_S, Device, Member, Node, Profile, ProfileJob, Variant
from scheduler import live
from scheduler.control.wire import application_spec, variant_spec
from scheduler.profiling.results import announce, give_up_or_retry, order_next
from workers import log
from workers.protocol import control, specs

logger = log.get("profiling")

#: seconds without progress after which a running job goes back to the queue
SILENT_S = 120
#: seconds that an order may take to reach the node and be reported
DELIVERY_S = 3
MAX_BATCH = 64
#: of a job whose attempt does not count
_QUEUED_AGAIN = {"state": "queued", "device": None, "phase": "", "progress": 0.0, "attempts": F("attempts") - 1}
_FOR_DRIFT = Q(reason=ProfileJob.Reason.DRIFT)
#: running jobs' last reports, as this process saw them change
_reports = clock.Unchanged()


def dispatch() -> int:
    """Start queued jobs on free devices, one at a time for drift; how many."""
    started = 0
    now = clock.steady()
    running = ProfileJob.objects.filter(state="running")
    busy = set(running.values_list("device_id", flat=True))
    measured_again = running.filter(_FOR_DRIFT).exists()
    divided = Device.objects.exclude(phase=Device.Phase.KEPT).values("node")
    # Types without a free device, for jobs for drift and for others: hundreds of jobs may wait for each
    exhausted: set[tuple[str, bool]] = set()
    people_first = ProfileJob.objects.filter(state="queued").order_by(Case(When(_FOR_DRIFT, 1), default=0), "id")
    for job in people_first.select_related("variant__application"):
        for_drift = job.reason == ProfileJob.Reason.DRIFT
        wanted = job.device_type, for_drift
        if wanted in exhausted or (for_drift and measured_again):
            continue
        devices = Device.objects.filter(type=job.device_type)
        if for_drift:
            # A profile that is there already is not replaced by one of shared cores.
            devices = devices.exclude(node__in=divided)
        usable = (
            devices.filter(state=Device.State.UP, node__state=Member.State.APPROVED)
            .filter(node__cordoned_at=None)
            .exclude(phase=Device.Phase.RETIRED)
            .filter(node__seen_s__gte=now - FRESH_S, node__seen_s__lte=now + clock.AHEAD_S)
            .exclude(node__channel="")
        )
        device = usable.exclude(pk__in=busy).order_by("ref").first()
        if device is None and not for_drift:
            device = _preempted(usable)
        if device is None:
            exhausted.add(wanted)
            continue
        busy.add(device.pk)
        if not _claim(job, device):
            continue
        job.refresh_from_db()
        announce(job)
        started += 1
        measured_again = measured_again or for_drift
        logger.info("profile_ordered", job=job.pk, variant=str(job.variant), device=device.ref, reason=job.reason)
    if started:
        live.members_changed()
    return started


def _preempted(usable: QuerySet[Device]) -> Device | None:
    """Take a device from a job for drift, which is queued again without an attempt."""
    running = ProfileJob.objects.filter(_FOR_DRIFT, state="running", device__in=usable)
    for job in running.select_related("device", "variant__application").order_by("-started"):
        device = job.device
        if ProfileJob.objects.filter(pk=job.pk, state="running", device=device).update(**_QUEUED_AGAIN):
            job.refresh_from_db()
            announce(job)
            logger.info("profile_preempted", job=job.pk, variant=str(job.variant), device=device.ref)
            return device
    return None


def orders(node: Node, jobs: Collection[int]) -> list[control.ProfileOrder]:
    running = ProfileJob.objects.filter(pk__in=jobs, state="running", device__node=node)
    return [_order(job, job.device) for job in running.select_related("variant__application", "device")]


def cancelled(jobs: Collection[int]) -> list[int]:
    """A node's former jobs that it is to stop: others' results may be on their way."""
    stopped = Q(state=ProfileJob.State.CANCELLED) | (Q(state=ProfileJob.State.QUEUED) & _FOR_DRIFT)
    return list(ProfileJob.objects.filter(stopped, pk__in=jobs).values_list("pk", flat=True)) if jobs else []


def reconcile(node: Node, under_way: Collection[int]) -> list[control.ToMember]:
    """Messages that make the node run exactly the jobs ordered from it.

    A job that the node has reported before but does not run now was lost with a restart of the node: this counts as an
    attempt, and the job goes back to the queue.
    """
    running = ProfileJob.objects.filter(state="running", device__node=node)
    jobs = {job.pk: job for job in running.select_related("variant__application", "device")}
    messages: list[control.ToMember] = [control.ProfileCancel(job=pk) for pk in under_way if pk not in jobs]
    now = timezone.now()
    for pk in sorted(jobs.keys() - set(under_way)):
        job = jobs[pk]
        if job.heard is not None:
            give_up_or_retry(job, "the node no longer runs it; it may have restarted", retry=True)
            order_next()
        elif not now - timedelta(seconds=DELIVERY_S) < (job.started or job.created) <= now:
            logger.warning("profile_order_repeated", job=pk, device=job.device.ref)
            messages.append(_order(job, job.device))
    return messages


def _claim(job: ProfileJob, device: Device) -> bool:
    try:
        with transaction.atomic():
            return bool(
                ProfileJob.objects.filter(pk=job.pk, state="queued").update(
                    state="running",
                    device=device,
                    phase="waiting",
                    progress=0.0,
                    started=timezone.now(),
                    heard=None,
                    attempts=F("attempts") + 1,
                )
            )
    except IntegrityError:
        return False


def _order(job: ProfileJob, device: Device) -> control.ProfileOrder:
    variant = job.variant
    validation = None
    wants = variant.accuracy is None or job.reason in (ProfileJob.Reason.REGISTRATION, ProfileJob.Reason.DEMAND)
    if variant.accuracy_source == Variant.Source.MEASURED and wants:
        held = getattr(variant.application, "validation_set", None)
        if held is not None:
            validation = specs.ValidationSpec(held.digest, held.metric)
    return control.ProfileOrder(
        job=job.pk,
        device=device.ref,
        variant=variant_spec(variant, None),
        application=application_spec(variant.application),
        first=not Profile.objects.filter(variant=variant, device_type=device.type).exists(),
        max_batch=MAX_BATCH,
        validation=validation,
        attempt=job.attempts,
    )


def requeue_silent() -> int:
    running = list(ProfileJob.objects.filter(state="running").select_related("device__node", "variant__application"))
    silent = _reports.ages({job.pk: (job.attempts, job.started, job.heard) for job in running})
    count = 0
    for job in running:
        away = job.device is None or not job.device.node.channel or job.device.state == Device.State.DOWN
        if away or silent[job.pk] > SILENT_S:
            give_up_or_retry(job, "the device is away, or reported no progress for too long", retry=True)
            count += 1
    return count
