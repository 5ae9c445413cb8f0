"""Registry rows as JSON, and accepted input. Unknown fields are rejected as misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.db.models import FloatField
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from registry import models, signatures
from registry.access.roles import BY_LABEL
from workers import metrics


def one_of(names: Iterable[str]) -> dict[str, str]:
    """The error message of a choice among these."""
    return {"invalid_choice": '"{input}" is not one of ' + ", ".join(names) + "."}


class StrictMixin:
    """Rejects fields that do not exist or may not be set.

    Attributes:
        RETIRED: fields of the release before, which are ignored, and what holds instead.
        warnings: lines about such fields in this request.
    """

    RETIRED: ClassVar[Mapping[str, str]] = {}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            # It says that this must be an object.
            return super().to_internal_value(data)
        self.warnings = [f"{name}: ignored; {instead}" for name, instead in self.RETIRED.items() if name in data]
        wrong = {}
        for name in data:
            if name in self.RETIRED:
                continue
            field = self.fields.get(name)
            if field is None:
                settable = [known for known, f in self.fields.items() if not f.read_only]
                near = difflib.get_close_matches(str(name), settable, n=1)
                wrong[str(name)[:60]] = [f"is not known{f'; did you mean {near[0]}?' if near else ''}"]
            elif field.read_only:
                wrong[name] = ["cannot be set"]
        if wrong:
            raise serializers.ValidationError(wrong)
        return super().to_internal_value(data)


class NumberField(serializers.FloatField):
    """A number; ``true`` is none, though Python would take it for 1."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class TensorSerializer(serializers.Serializer):
    """Part of the schema only."""

    name = serializers.CharField(max_length=signatures.MAX_NAME)
    datatype = serializers.ChoiceField(
        choices=[(name, name) for name in signatures.DATATYPES], error_messages=one_of(signatures.DATATYPES)
    )
    shape = serializers.ListField(
        child=serializers.IntegerField(min_value=-1),
        min_length=1,
        max_length=signatures.MAX_RANK,
        help_text="The batch dimension (-1) first; -1 in other places leaves them open.",
    )


class SignatureSerializer(serializers.Serializer):
    """Part of the schema only."""

    inputs = TensorSerializer(many=True)
    outputs = TensorSerializer(many=True)


@extend_schema_field(SignatureSerializer)
class SignatureField(serializers.JSONField):
    """A signature that passes :func:`registry.signatures.check`."""

    def to_internal_value(self, data: Any) -> Any:
        faults = signatures.check(data)
        if faults:
            wrong: dict[str, list[str]] = {}
            for fault in faults:
                wrong.setdefault(fault.field or "non_field_errors", []).append(fault.detail)
            raise serializers.ValidationError(wrong)
        return data


@extend_schema_field({"type": "object", "additionalProperties": {"type": "number"}})
class PaddingField(serializers.JSONField):
    """Padding values by input; held against the signature with the rest."""


@extend_schema_field({"type": "array", "items": {"type": "integer"}})
class SizesField(serializers.JSONField):
    """Sizes of open dimensions; held against the signature with the rest."""


def warnings_field() -> serializers.ListField:
    """Warnings of a change: a line for each field of the request that was ignored or replaced."""
    return serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="A line for each field of the request that is retired: what was done with it.",
    )


class ApplicationSerializer(StrictMixin, serializers.ModelSerializer):
    """An application."""

    RETIRED: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("batch_policy", "batch_options"), "batching is part of the cluster's stack (PATCH /api/v1/control/)"
    )
    serializer_field_mapping = {**serializers.ModelSerializer.serializer_field_mapping, FloatField: NumberField}
    signature = SignatureField()
    padding = PaddingField(
        required=False,
        help_text="Values by input: its open dimensions are filled up to the longest of a batch. Outputs are cut back "
        "where the model names their dimensions as the input's. Other inputs run together by equal shape only.",
    )
    sizes = SizesField(
        required=False,
        help_text="Ascending sizes of open dimensions: uploads are tried, and profiles taken, at each of these size "
        "classes, and queries beyond the largest are refused. Empty: any size.",
    )

    class Meta:
        model = models.Application
        fields = [
            "name",
            "description",
            "group",
            "slo_ms",
            "late",
            "signature",
            "padding",
            "sizes",
            "weight",
            "floor",
            "state",
            "created",
        ]
        read_only_fields = ["state", "created"]
        # The unique constraint's own error (409) says more than a validation error would.
        extra_kwargs = {
            "name": {"validators": [models.name_validator]},
            "description": {"max_length": 2000},
            "group": {"help_text": "Your own name for applications that belong together; the console folds by it."},
            "weight": {"help_text": "Worth of one answer, where not all demand can be served."},
            "floor": {"help_text": "Share of the demand served before anything beyond other applications' floors is."},
        }

    def validate_name(self, name: str) -> str:
        if self.instance is not None and name != self.instance.name:
            raise serializers.ValidationError("cannot be changed: clients address the application by it")
        return name

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        self._validate_shapes(fields)
        return fields

    def _validate_shapes(self, fields: dict[str, Any]) -> None:
        signature = fields.get("signature", getattr(self.instance, "signature", None))
        wrong: dict[str, Any] = {}
        for name, check in (("padding", signatures.check_padding), ("sizes", signatures.check_sizes)):
            value = fields.get(name, getattr(self.instance, name, None))
            faults = check(value, signature) if value is not None else []
            if faults:
                wrong[name] = {fault.field: [fault.detail] for fault in faults if fault.field} or [
                    fault.detail for fault in faults
                ]
        if wrong:
            raise serializers.ValidationError(wrong)


class ChangedApplicationSerializer(ApplicationSerializer):
    """An application as a request left it."""

    warnings = warnings_field()

    class Meta(ApplicationSerializer.Meta):
        fields = [*ApplicationSerializer.Meta.fields, "warnings"]


class ValidationSetSerializer(serializers.ModelSerializer):
    """An application's validation set."""

    application = serializers.SlugRelatedField("name", read_only=True)

    class Meta:
        model = models.ValidationSet
        fields = ["application", "metric", "rows", "digest", "size_bytes", "created"]


class ValidationUploadSerializer(StrictMixin, serializers.Serializer):
    """Upload of a validation set."""

    file = serializers.FileField(help_text="An .npz with one array an input and labels.", allow_empty_file=True)
    metric = serializers.ChoiceField(
        choices=[(name, name) for name in metrics.names()], error_messages=one_of(metrics.names())
    )


class VariantSerializer(serializers.ModelSerializer):
    """A variant. Needs ``normalized``, ``resident`` and ``warm`` (each by id) in its context."""

    application = serializers.SlugRelatedField("name", read_only=True)
    accuracy_normalized = serializers.SerializerMethodField(help_text="Percent of the application's best variant.")
    state = serializers.ChoiceField(
        choices=models.Variant.State.choices,
        read_only=True,
        help_text="From ready on, queries of its application are answered, by this variant or by another; warm_on says "
        "where this one can run now.",
    )
    resident_on = serializers.SerializerMethodField(help_text="Devices that hold it or that the plan wants to hold it.")
    warm_on = serializers.SerializerMethodField(help_text="Devices that are up and can run it now.")

    class Meta:
        model = models.Variant
        fields = [
            "id",
            "name",
            "application",
            "accuracy",
            "accuracy_source",
            "accuracy_normalized",
            "state",
            "detail",
            "pinned",
            "excluded",
            "digest",
            "size_bytes",
            "opset",
            "inspection",
            "resident_on",
            "warm_on",
            "created",
        ]

    def get_accuracy_normalized(self, variant: models.Variant) -> float | None:
        return self.context["normalized"].get(variant.pk)

    def get_resident_on(self, variant: models.Variant) -> list[str]:
        return self.context["resident"].get(variant.pk, [])

    def get_warm_on(self, variant: models.Variant) -> list[str]:
        return self.context["warm"].get(variant.pk, [])


def _accuracy(**kwargs: Any) -> NumberField:
    return NumberField(
        min_value=0,
        max_value=100,
        help_text="Percent in the application's metric; left out (null in a PATCH), it is measured.",
        **kwargs,
    )


class VariantUploadSerializer(StrictMixin, serializers.Serializer):
    """Upload of a variant."""

    name = serializers.CharField(max_length=63, validators=[models.name_validator])
    file = serializers.FileField(help_text="An ONNX model.", allow_empty_file=True)
    accuracy = _accuracy(required=False)


class VariantChangeSerializer(StrictMixin, serializers.Serializer):
    """Change of a variant."""

    accuracy = _accuracy(allow_null=True, required=False)
    pinned = serializers.BooleanField(
        required=False, help_text="Resident on one device at least, wherever that is possible."
    )
    excluded = serializers.BooleanField(required=False, help_text="Never planned.")

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not fields:
            raise serializers.ValidationError({"accuracy": ["is required where neither pinned nor excluded is given"]})
        if fields.get("pinned") and fields.get("excluded"):
            raise serializers.ValidationError({"pinned": ["cannot be true where excluded is true"]})
        return fields


class LatencySerializer(serializers.ModelSerializer):
    """Latency of one batch size in one size class."""

    class Meta:
        model = models.ProfileLatency
        fields = ["size", "batch", "p50_ms", "p95_ms", "mean_ms", "samples"]
        extra_kwargs = {
            "size": {"help_text": "The size class; 0: the largest, and those that take as long, so any query's."}
        }


class ProfileSerializer(serializers.ModelSerializer):
    """Profile of a variant on a device type."""

    variant = serializers.SlugRelatedField("name", read_only=True)
    application = serializers.CharField(source="variant.application.name", read_only=True)
    latencies = LatencySerializer(many=True, read_only=True)
    max_batch = serializers.SerializerMethodField(
        help_text="1: the model's batch size is fixed at that, so it is served unbatched; null: as profiled."
    )

    class Meta:
        model = models.Profile
        fields = [
            "variant",
            "application",
            "device_type",
            "max_batch",
            "load_s",
            "memory_bytes",
            "measured",
            "blocked",
            "latencies",
        ]
        extra_kwargs = {
            "blocked": {
                "help_text": "Why plans leave the variant out on this device type; empty: they do not. "
                "Profiling it again lifts the block."
            }
        }

    def get_max_batch(self, profile: models.Profile) -> int | None:
        return profile.variant.inspection.get("max_batch")


class ProfileJobSerializer(serializers.ModelSerializer):
    """An order to measure, and how far it is."""

    variant = serializers.SlugRelatedField("name", read_only=True)
    application = serializers.CharField(source="variant.application.name", read_only=True)
    device = serializers.SlugRelatedField("ref", read_only=True, allow_null=True)

    class Meta:
        model = models.ProfileJob
        fields = [
            "id",
            "variant",
            "application",
            "device_type",
            "device",
            "reason",
            "state",
            "phase",
            "progress",
            "detail",
            "attempts",
            "created",
            "started",
            "finished",
        ]


class ProfileJobsSerializer(serializers.Serializer):
    """The jobs that were ordered, or that were open already."""

    jobs = ProfileJobSerializer(many=True)


class ExpiryField(serializers.DateTimeField):
    """When something ends: in the future, with a time zone or in UTC; null: never."""

    def to_internal_value(self, value: Any) -> Any:
        parsed = super().to_internal_value(value)
        if parsed <= timezone.now():
            raise serializers.ValidationError("must be in the future")
        return parsed


class ApiKeySerializer(StrictMixin, serializers.ModelSerializer):
    """An API key, without the key."""

    applications = serializers.ListField(
        child=serializers.CharField(max_length=63),
        allow_null=True,
        required=False,
        max_length=1000,
        help_text="Applications that it reaches, by name; null: all.",
    )
    rate = NumberField(
        allow_null=True, required=False, min_value=0.001, max_value=1e6, help_text="Queries/s; null: no limit."
    )
    burst = serializers.IntegerField(
        allow_null=True,
        required=False,
        min_value=1,
        max_value=1_000_000,
        help_text="Queries that may come at once after a pause; null: those of one second.",
    )
    share = NumberField(
        allow_null=True,
        required=False,
        min_value=0.001,
        max_value=1,
        help_text="Part of an application's capacity that it gets at most while the application refuses queries; "
        "null: no limit.",
    )
    expires = ExpiryField(allow_null=True, required=False)

    class Meta:
        model = models.ApiKey
        fields = ["name", "prefix", "applications", "rate", "burst", "share", "expires", "created"]
        read_only_fields = ["prefix", "created"]
        extra_kwargs = {"name": {"validators": [models.name_validator]}}

    def validate_applications(self, names: list[str] | None) -> list[str] | None:
        """Names of existing applications, each once."""
        if names is None:
            return None
        known = set(models.Application.objects.filter(name__in=names).values_list("name", flat=True))
        # An application that went stays in a key's list, so that changing the list need not name what is gone.
        known |= set((self.instance.applications if self.instance else None) or ())
        missing = sorted(set(names) - known)
        if missing:
            raise serializers.ValidationError(f"no such application: {', '.join(missing)[:200]}")
        return sorted(set(names))


class ApiKeyChangeSerializer(ApiKeySerializer):
    """Changed limits of an API key; the name stays."""

    class Meta(ApiKeySerializer.Meta):
        read_only_fields = ["name", "prefix", "created"]


class NewApiKeySerializer(ApiKeySerializer):
    """A key that was just made; this once it can be read."""

    key = serializers.CharField(read_only=True)

    class Meta(ApiKeySerializer.Meta):
        fields = [*ApiKeySerializer.Meta.fields, "key"]


class ApiTokenSerializer(StrictMixin, serializers.ModelSerializer):
    """An API token, without the token."""

    user = serializers.SlugRelatedField(
        slug_field="username", queryset=User.objects.filter(is_active=True), required=False
    )
    role = serializers.ChoiceField(
        choices=list(BY_LABEL),
        error_messages=one_of(BY_LABEL),
        help_text="What it may do at most; never more than its account.",
    )
    expires = ExpiryField(allow_null=True, required=False)

    class Meta:
        model = models.ApiToken
        fields = ["name", "user", "role", "prefix", "expires", "last_used", "created"]
        read_only_fields = ["prefix", "last_used", "created"]
        extra_kwargs = {"name": {"validators": [models.name_validator]}}


class NewApiTokenSerializer(ApiTokenSerializer):
    """A token that was just made; this once it can be read."""

    token = serializers.CharField(read_only=True)

    class Meta(ApiTokenSerializer.Meta):
        fields = [*ApiTokenSerializer.Meta.fields, "token"]


class AuditEntrySerializer(serializers.ModelSerializer):
    """One change."""

    class Meta:
        model = models.AuditEntry
        fields = ["id", "at", "actor", "origin", "address", "action", "kind", "ref", "before", "after"]
