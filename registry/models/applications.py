"""Applications, their variants and validation sets."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from registry.audit.tracking import AuditedQuerySet
from registry.models.fields import SharedJSONField
from registry.models.names import name_validator


class Application(models.Model):
    class Late(models.TextChoices):
        SHED = "shed", "refuse what cannot be in time"
        SERVE = "serve", "answer late"

    class NonFinite(models.TextChoices):
        ERROR = "error", "refuse with a hint"
        NULL = "null", "write null"

    class State(models.TextChoices):
        ACTIVE = "active"
        DRAINING = "draining"

    #: what operators set
    SETTABLE = ("name", "description", "group", "slo_ms", "late", "non_finite", "signature", "batch", "padding")
    SETTABLE += ("sizes", "weight", "floor")

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    description = models.TextField(blank=True, default="")
    #: an operator's own name for applications that belong together; the console folds them by it. Empty: none
    group = models.CharField(max_length=63, blank=True, default="")
    slo_ms = models.FloatField(validators=[MinValueValidator(1), MaxValueValidator(600_000)])
    late = models.CharField(max_length=5, choices=Late.choices, default=Late.SHED)
    #: JSON answers have no NaN and infinities; binary data has
    non_finite = models.CharField(max_length=5, choices=NonFinite.choices, default=NonFinite.ERROR)
    #: {"inputs": [{"name", "datatype", "shape"}], "outputs": [...]}, batch dimension first (-1)
    signature = SharedJSONField()
    #: False: shapes are the models' own, without a batch dimension, and queries run one by one
    batch = models.BooleanField(default=True)
    #: inputs whose open dimensions are filled up to the longest of a batch: {input: value}
    padding = models.JSONField(default=dict, blank=True)
    #: sizes of open dimensions to count on, ascending: the size classes; larger queries are refused. Empty: any size
    sizes = models.JSONField(default=list, blank=True)
    #: worth of one answer beside other applications' answers, where not all demand can be served
    weight = models.FloatField(default=1.0, validators=[MinValueValidator(0.001), MaxValueValidator(1000)])
    #: share of the demand that is served before anything beyond other applications' floors is
    floor = models.FloatField(default=0.0, validators=[MinValueValidator(0), MaxValueValidator(1)])
    state = models.CharField(max_length=8, choices=State.choices, default=State.ACTIVE)
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ValidationSet(models.Model):
    """An ``.npz`` of inputs and ``labels``, for the accuracy of variants."""

    application = models.OneToOneField(Application, on_delete=models.CASCADE, related_name="validation_set")
    digest = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField()
    metric = models.CharField(max_length=40)
    rows = models.PositiveIntegerField()
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()


class Variant(models.Model):
    """One ONNX model that can serve an application."""

    class State(models.TextChoices):
        PROFILING = "profiling", "waiting for or in its first profile"
        LOADING = "loading", "profiled; no gateway answers for its application yet"
        READY = "ready", "profiled, and its application answers queries"
        FAILED = "failed", "could not be profiled or measured"
        DRAINING = "draining", "leaving the plan, then deleted"

    #: states in which plans count on a variant
    PLANNED = (State.LOADING, State.READY)

    class Source(models.TextChoices):
        DECLARED = "declared"
        MEASURED = "measured"

    application = models.ForeignKey(Application, on_delete=models.CASCADE, related_name="variants")
    name = models.CharField(max_length=63, validators=[name_validator])
    digest = models.CharField(max_length=64, db_index=True)
    size_bytes = models.BigIntegerField()
    accuracy = models.FloatField(null=True, blank=True)
    accuracy_source = models.CharField(max_length=8, choices=Source.choices, default=Source.DECLARED)
    opset = models.PositiveIntegerField(default=0)
    inspection = models.JSONField(default=dict, blank=True)
    #: ``.npz`` of a few rows, where it runs with no made-up values
    trial_rows = models.BinaryField(default=b"", blank=True)
    #: why its queries run alone, never two in one run; empty: they share runs
    alone = models.TextField(blank=True, default="")
    state = models.CharField(max_length=9, choices=State.choices, default=State.PROFILING)
    detail = models.TextField(blank=True, default="")
    #: operator preferences: resident on one device at least, wherever that is possible; or never planned
    pinned = models.BooleanField(default=False)
    excluded = models.BooleanField(default=False)
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        ordering = ["application__name", "name"]
        constraints = [
            models.UniqueConstraint(fields=["application", "name"], name="variant_name_once"),
            models.CheckConstraint(
                condition=models.Q(pinned=False) | models.Q(excluded=False), name="variant_pinned_or_excluded"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.application.name}/{self.name}"

    @property
    def why_alone(self) -> str:
        """Why its queries run alone; empty: they share runs."""
        return self.alone or ("" if self.application.batch else "its application has no batch dimension")
