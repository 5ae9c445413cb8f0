"""Profiles of variants on device types, jobs that measure them, and failed runs."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from registry.models.applications import Variant
from registry.models.members import Device


class ProfileJob(models.Model):
    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    class Reason(models.TextChoices):
        REGISTRATION = "registration"
        DEMAND = "demand", "asked for"
        DRIFT = "drift"
        NEW_TYPE = "new_type", "new device type"

    variant = models.ForeignKey(Variant, on_delete=models.CASCADE, related_name="profile_jobs")
    device_type = models.CharField(max_length=120)
    device = models.ForeignKey(Device, null=True, blank=True, on_delete=models.SET_NULL)
    reason = models.CharField(max_length=12, choices=Reason.choices, default=Reason.REGISTRATION)
    state = models.CharField(max_length=9, choices=State.choices, default=State.QUEUED)
    phase = models.CharField(max_length=12, blank=True, default="waiting")
    progress = models.FloatField(default=0.0)
    detail = models.TextField(blank=True, default="")
    attempts = models.PositiveIntegerField(default=0)
    created = models.DateTimeField(auto_now_add=True)
    started = models.DateTimeField(null=True, blank=True)
    #: when the device last reported on the job
    heard = models.DateTimeField(null=True, blank=True)
    finished = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["variant", "device_type"],
                condition=models.Q(state__in=["queued", "running"]),
                name="one_open_profile_job",
            ),
            # A device measures one variant at a time.
            models.UniqueConstraint(
                fields=["device"], condition=models.Q(state="running"), name="one_running_profile_job"
            ),
        ]


class Profile(models.Model):
    """Measured facts of one variant on one device type that hold for all batch sizes."""

    variant = models.ForeignKey(Variant, on_delete=models.CASCADE, related_name="profiles")
    device_type = models.CharField(max_length=120)
    load_s = models.FloatField()
    memory_bytes = models.BigIntegerField()
    measured = models.DateTimeField(auto_now=True)
    #: why plans leave the variant out on this device type; empty: they do not
    blocked = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["variant", "device_type"]
        constraints = [models.UniqueConstraint(fields=["variant", "device_type"], name="profile_once")]


class ProfileLatency(models.Model):
    """Latency by (variant, device type, size class, batch size)."""

    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="latencies")
    #: size class of the queries; 0: the largest, so that it holds for queries of any size
    size = models.PositiveIntegerField(default=0)
    batch = models.PositiveIntegerField()
    p50_ms = models.FloatField()
    p95_ms = models.FloatField()
    mean_ms = models.FloatField()
    samples = models.PositiveIntegerField()

    class Meta:
        ordering = ["size", "batch"]
        verbose_name_plural = "profile latencies"
        constraints = [models.UniqueConstraint(fields=["profile", "size", "batch"], name="latency_once")]


class Fault(models.Model):
    """A run that went wrong on a device."""

    class Cause(models.TextChoices):
        CRASHED = "crashed", "the executor crashed"
        STOPPED = "stopped", "the run exceeded its limit and was stopped"
        MIXED = "mixed", "the answer to a query depended on the others of its run"

    variant = models.ForeignKey(Variant, on_delete=models.CASCADE, related_name="faults")
    #: by name: a device that is gone stays part of what happened
    device = models.CharField(max_length=120)
    device_type = models.CharField(max_length=120)
    cause = models.CharField(max_length=7, choices=Cause.choices)
    detail = models.TextField(blank=True, default="")
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-id"]
