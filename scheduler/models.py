"""Plans with their inputs, operators' choices, leases, promises, what-ifs and known repairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models

from registry import clock
from registry.audit.tracking import AuditedQuerySet
from scheduler.allocation.problem import CERTIFIED

#: characters of a plan's detail
MOST_DETAIL = 300
#: columns of a problem's rows that explain its plan; profiles, by far the largest part, are not among them
KEPT = {
    "devices": ("id", "type", "available", "memory_bytes"),
    "applications": ("id", "slo_s", "demand", "expected", "weight"),
    "variants": ("id", "name", "application", "accuracy", "excluded"),
}


def kept_inputs(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Part of a problem that is kept as long as its plan; empty for an empty problem."""
    if not problem:
        return {}
    rows = {
        kind: [{name: row[name] for name in names if name in row} for row in problem.get(kind) or ()]
        for kind, names in KEPT.items()
    }
    return {**rows, "time_limit_s": problem.get("time_limit_s")}


class Plan(models.Model):
    """One allocation that was decided, and why; the id is the plan's version."""

    class Trigger(models.TextChoices):
        PERIOD = "period", "regular"
        BURST = "burst", "demand left the plan's band"
        OVERLOAD = "overload", "queries were refused"
        CHANGE = "change", "variants, devices or settings changed"
        MANUAL = "manual", "asked for"

    trigger = models.CharField(max_length=8, choices=Trigger.choices)
    trigger_detail = models.CharField(max_length=MOST_DETAIL, blank=True, default="")
    stack = models.CharField(max_length=40)
    #: the Problem, the Allocation and the wire Plan, as msgspec/JSON builtins; policies are in the last one alone
    problem = models.JSONField()
    #: the part of the problem that explains the plan: it stays when the problem is deleted
    inputs = models.JSONField(default=dict)
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
    #: whether any device holds something else than by the plan before; true for plans of older releases
    changed = models.BooleanField(default=True)
    reasons = models.JSONField(default=list)
    created = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        ordering = ["-id"]

    def save(self, *args: Any, **more: Any) -> None:
        if self.problem and not more.get("update_fields"):
            self.inputs = kept_inputs(self.problem)
        super().save(*args, **more)

    @property
    def whole_allocation(self) -> dict[str, Any]:
        """With its policies by load, which may be most of a plan and are stored once."""
        policies = [
            {**planned, "variants": [str(variant) for variant in planned["variants"]]}
            for planned in self.wire.get("policies") or ()
        ]
        return {**self.allocation, "policies": policies}

    @property
    def refused(self) -> str:
        """The rules that the strategy's own allocation broke, where this plan stands in."""
        return self.allocation.get("refused", "")

    @property
    def decided_by(self) -> str:
        """The method in words; empty where a rule decided.

        The gap of a heuristic is that to all demand on the most accurate variants, not its MILP's.
        """
        if self.method == "milp" and self.status == "heuristic":
            return "MILP"
        if self.method == "milp":
            return "MILP, proved" if self.gap <= CERTIFIED else "MILP, not proved"
        return self.method


class Choice(models.Model):
    """An operator's choice; a setting without a row is the environment's."""

    setting = models.CharField(max_length=20, primary_key=True)
    value = models.CharField(max_length=40)
    changed = models.DateTimeField(auto_now=True)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        ordering = ["setting"]


class WorkLease(models.Model):
    """The right to do one kind of work, and the requests (:mod:`scheduler.control`)."""

    name = models.CharField(max_length=20, primary_key=True)
    #: a name of the process that has it; empty: it is free
    holder = models.CharField(max_length=120, blank=True, default="")
    #: counts holders, and the signs of life of the one that has it
    epoch = models.PositiveBigIntegerField(default=0)
    renewals = models.PositiveBigIntegerField(default=0)
    #: numbers of the latest request, of the latest that work was begun for, and of the latest that it was done for
    wanted = models.PositiveBigIntegerField(default=0)
    started = models.PositiveBigIntegerField(default=0)
    served = models.PositiveBigIntegerField(default=0)
    #: number, trigger and detail of requests that are not served
    causes = models.JSONField(default=list)
    #: by application, the rate (items/s) that a burst reported, and its stamp
    rates = models.JSONField(default=dict)
    #: by trigger, the stamp of the latest request
    requested = models.JSONField(default=dict)
    #: stamp of the end of the latest attempt, its error, and the first of the failures in a row
    ended = models.CharField(max_length=40, blank=True, default="")
    error = models.CharField(max_length=500, blank=True, default="")
    failing_since = models.DateTimeField(null=True, blank=True)

    @property
    def waits(self) -> bool:
        return self.wanted > self.started

    @property
    def age_s(self) -> float:
        return clock.age(self.ended)

    def touch(self, **changes: Any) -> bool:
        """Begin another epoch; False: somebody else touched the lease since it was read."""
        same = WorkLease.objects.filter(name=self.name, epoch=self.epoch, renewals=self.renewals, holder=self.holder)
        return bool(same.update(epoch=self.epoch + 1, **changes))


class Promise(models.Model):
    """The expectation that a plan was published with, and the outcome beside it."""

    class State(models.TextChoices):
        WAITING = "waiting", "waits for its window to be over"
        COMPARED = "compared", "compared with what came"
        VOID = "void", "what it was made for changed meanwhile, or nothing is known of what came"

    created = models.DateTimeField(auto_now_add=True)
    #: when the window began, by the steady clock
    stamp = models.CharField(max_length=40)
    window_s = models.PositiveIntegerField()
    #: how many windows were simulated, and for how long
    windows = models.PositiveIntegerField()
    wall_s = models.FloatField()
    #: version of the plan, and the check index of what it was made for (see :mod:`scheduler.promises.present`)
    plan = models.PositiveBigIntegerField()
    stack = models.CharField(max_length=40)
    index = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    #: by application; see :func:`scheduler.promises.keeping.expectations`
    expected = models.JSONField(default=dict)
    #: by application: items, accuracy (None: none was in time), violations
    observed = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]


class WhatIf(models.Model):
    """Changes that somebody imagined, the plan that would result, and its promise."""

    class State(models.TextChoices):
        WAITING = "waiting", "waits for the worker"
        PLANNING = "planning", "the plan is being made"
        SIMULATING = "simulating", "the plan is made, its promise is being simulated"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    OPEN = (State.WAITING, State.PLANNING, State.SIMULATING)

    created = models.DateTimeField(auto_now_add=True)
    stamp = models.CharField(max_length=40)
    by = models.CharField(max_length=150)
    changes = models.JSONField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    #: the home whose worker plans or simulates it, and how many times it was resumed after a stop
    holder = models.CharField(max_length=12, blank=True, default="")
    resumed = models.PositiveSmallIntegerField(default=0)
    #: share of the simulation that is done
    progress = models.FloatField(default=0.0)
    error = models.CharField(max_length=500, blank=True, default="")
    #: check index of the state at the question
    index = models.CharField(max_length=64, blank=True, default="")
    #: what both plans do, with and without the changes, and until the answer the snapshot that they are for; see
    #: :func:`scheduler.promises.what_if.plan_summary`
    plan = models.JSONField(default=dict)
    present_plan = models.JSONField(default=dict)
    #: promises by application, for both
    promise = models.JSONField(default=dict)
    present_promise = models.JSONField(default=dict)
    applied = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]


class KnownRepair(models.Model):
    """A repair at upkeep's last look: since when, and whether operators ignore it."""

    key = models.CharField(max_length=300, primary_key=True)
    #: when it was first seen, by the wall clock for people and by the steady one for comparing
    since = models.DateTimeField()
    stamp = models.CharField(max_length=40)
    #: whether the look before did not see it, so that it began at ``since``
    witnessed = models.BooleanField(default=False)
    #: whether it lasted for long enough to be shown and announced
    raised = models.BooleanField(default=False)
    #: the fingerprint that is ignored, and by whom; empty: none
    ignored = models.CharField(max_length=32, blank=True, default="")
    ignored_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        ordering = ["key"]
