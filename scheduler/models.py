"""Plans, kept with their inputs, operators' choices for the control loop, and leases on its work."""

from __future__ import annotations

from django.db import models

from registry.audit.tracking import AuditedQuerySet
from scheduler.allocation.problem import CERTIFIED


class Plan(models.Model):
    """One allocation that was decided: its inputs, its outcome and its reasons. The id is the plan's version."""

    class Trigger(models.TextChoices):
        PERIOD = "period", "regular"
        BURST = "burst", "demand left the plan's band"
        OVERLOAD = "overload", "queries were refused"
        CHANGE = "change", "variants, devices or settings changed"
        MANUAL = "manual", "asked for"

    trigger = models.CharField(max_length=8, choices=Trigger.choices)
    trigger_detail = models.CharField(max_length=300, blank=True, default="")
    stack = models.CharField(max_length=40)
    #: the Problem, the Allocation and the wire Plan, as msgspec/JSON builtins
    problem = models.JSONField()
    allocation = models.JSONField()
    wire = models.JSONField()
    status = models.CharField(max_length=10)
    accuracy = models.FloatField(default=0.0)
    demand = models.FloatField(default=0.0)
    served = models.FloatField(default=0.0)
    solve_s = models.FloatField(default=0.0)
    gap = models.FloatField(default=0.0)
    #: how `nereus` decided: ``milp`` or ``search``; empty: another strategy, or a plan of an older release
    method = models.CharField(max_length=10, blank=True, default="")
    moves = models.PositiveIntegerField(default=0)
    reasons = models.JSONField(default=list)
    created = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"plan {self.pk}"

    @property
    def refused(self) -> str:
        """The rules that the strategy's own allocation broke, where this plan stands in for it; else empty."""
        return self.allocation.get("refused", "")

    @property
    def proved(self) -> bool:
        """Whether the MILP decided, within its certified gap."""
        return self.method == "milp" and self.gap <= CERTIFIED


class Choice(models.Model):
    """An operator's choice for the control loop; a setting without a row is the environment's."""

    setting = models.CharField(max_length=20, primary_key=True)
    value = models.CharField(max_length=40)
    changed = models.DateTimeField(auto_now=True)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        ordering = ["setting"]

    def __str__(self) -> str:
        return f"{self.setting}={self.value}"


class WorkLease(models.Model):
    """The right to do one kind of work; see :mod:`scheduler.control.leases`."""

    name = models.CharField(max_length=20, primary_key=True)
    #: a name of the process that has it; empty: it is free
    holder = models.CharField(max_length=120, blank=True, default="")
    #: counts holders, and the signs of life of the one that has it
    epoch = models.PositiveBigIntegerField(default=0)
    renewals = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}: {self.holder or 'free'} ({self.epoch})"


class KnownRepair(models.Model):
    """A repair that upkeep saw at its last look: since when, and whether operators ignore it."""

    key = models.CharField(max_length=300, primary_key=True)
    #: when it was first seen, by the wall clock for people and by the steady one for comparing
    since = models.DateTimeField()
    stamp = models.CharField(max_length=40)
    #: whether the look before did not see it, so that it began at ``since``
    witnessed = models.BooleanField(default=False)
    #: the fingerprint that is ignored, and by whom; empty: none
    ignored = models.CharField(max_length=32, blank=True, default="")
    ignored_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        ordering = ["key"]

    def __str__(self) -> str:
        return self.key
