"""Ordering profiles. An order is a row; the scheduler dispatches rows to nodes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from registry import events
from registry.errors import Conflict
from registry.models import Application, Device, Node, Profile, ProfileJob, Variant

OPEN = (ProfileJob.State.QUEUED, ProfileJob.State.RUNNING)


def known_device_types() -> list[str]:
    return sorted(
        Device.objects.filter(node__state=Node.State.APPROVED).order_by().values_list("type", flat=True).distinct()
    )


def order(variant: Variant, reason: str, device_types: Iterable[str] | None = None) -> list[ProfileJob]:
    """Order to measure ``variant`` on device types (default: all known ones).

    Each has one open job at most: that one is returned, one for drift with the new reason. A failed
    variant gets another chance.
    """
    types = known_device_types() if device_types is None else sorted(set(device_types))
    jobs = []
    with transaction.atomic():
        for device_type in types:
            jobs.append(_open_job(variant, device_type, reason) or _create(variant, device_type, reason))
        if jobs:
            again = Variant.objects.filter(pk=variant.pk, state=Variant.State.FAILED)
            if again.update(state=Variant.State.PROFILING, detail=""):
                events.changed("variant", str(variant), replan=False)
    return jobs


def _open_job(variant: Variant, device_type: str, reason: str) -> ProfileJob | None:
    found = ProfileJob.objects.filter(variant=variant, device_type=device_type, state__in=OPEN)
    # People who ask for the same wait no longer than for a job of their own.
    found.filter(reason=ProfileJob.Reason.DRIFT).update(reason=reason)
    return found.first()


def _create(variant: Variant, device_type: str, reason: str) -> ProfileJob:
    try:
        with transaction.atomic():
            job = ProfileJob.objects.create(variant=variant, device_type=device_type, reason=reason)
    except IntegrityError:
        # Somebody else ordered the same just now.
        return ProfileJob.objects.get(variant=variant, device_type=device_type, state__in=OPEN)
    events.changed("profile_job", str(job.pk))
    return job


def order_missing(device_type: str) -> list[ProfileJob]:
    """Order profiles on a device type for variants that have none there and were not tried before."""
    variants = Variant.objects.filter(application__state=Application.State.ACTIVE).exclude(state=Variant.State.DRAINING)
    # Devices come up by the hundred, almost always of types on which nothing is missing.
    tried = ProfileJob.objects.filter(device_type=device_type).exclude(state=ProfileJob.State.CANCELLED)
    profiled = Profile.objects.filter(device_type=device_type)
    missing = variants.exclude(pk__in=tried.values("variant")).exclude(pk__in=profiled.values("variant"))
    jobs = []
    for variant in missing.select_related("application"):
        new = variant.profiles.exists()
        jobs += order(variant, ProfileJob.Reason.NEW_TYPE if new else ProfileJob.Reason.REGISTRATION, [device_type])
    return jobs


def cancel(jobs: Iterable[ProfileJob], detail: str) -> int:
    cancelled = 0
    for job in jobs:
        if ProfileJob.objects.filter(pk=job.pk, state__in=OPEN).update(
            state=ProfileJob.State.CANCELLED, detail=detail, finished=timezone.now()
        ):
            cancelled += 1
            events.changed("profile_job", str(job.pk))
    return cancelled


def withdraw(job: ProfileJob, detail: str) -> None:
    """Cancel a job; its variant may fail by that. Raises Conflict: it has ended."""
    with transaction.atomic():
        if not cancel([job], detail):
            state = ProfileJob.objects.filter(pk=job.pk).values_list("state", flat=True).first()
            raise Conflict(f"profile job {job.pk} has ended already: {state or 'deleted'}")
        variant = job.variant
        if not variant.profiles.exists() and not variant.profile_jobs.filter(state__in=OPEN).exists():
            waiting = Variant.objects.filter(pk=variant.pk, state=Variant.State.PROFILING)
            if waiting.update(state=Variant.State.FAILED, detail=f"its profiling was {detail}"):
                events.changed("variant", str(variant), replan=False)


def end_orphaned() -> int:
    """End queued jobs of device types that no box has any more; how many."""
    there = Device.objects.exclude(detail=Device.GONE).filter(
        # A box that was turned away may be taken back until its devices are written off.
        Q(node__state=Node.State.APPROVED) | ~Q(state=Device.State.DOWN)
    )
    queued = ProfileJob.objects.filter(state=ProfileJob.State.QUEUED).select_related("variant")
    orphaned = list(queued.exclude(device_type__in=there.order_by().values("type")))
    ended = 0
    for job in orphaned:
        with suppress(Conflict):
            withdraw(job, f"ended: no box has a device of type {job.device_type} any more")
            ended += 1
    return ended


def order_anew(application: Application) -> None:
    """Order profiles of every profiled variant again, after a change of inputs.

    A job that is being measured is replaced; one that is queued will use the new values.
    """
    for variant in application.variants.exclude(state=Variant.State.DRAINING):
        begun = list(variant.profile_jobs.filter(state=ProfileJob.State.RUNNING))
        cancel(begun, "the application changed meanwhile")
        for job in begun:
            order(variant, job.reason, [job.device_type])
        if variant.state in Variant.PLANNED:
            order(variant, ProfileJob.Reason.DEMAND)


def measure_again(application: Application) -> None:
    """Measure variants again after their validation set changed.

    On one device type, which is enough; an open job, which may be half through with the old set, is replaced.
    """
    measured = application.variants.filter(accuracy_source=Variant.Source.MEASURED).exclude(
        state=Variant.State.DRAINING
    )
    types = known_device_types()
    for variant in measured:
        replaced = list(variant.profile_jobs.filter(state__in=OPEN))
        cancel(replaced, "the validation set changed")
        order(variant, ProfileJob.Reason.DEMAND, {job.device_type for job in replaced} or types[:1])
