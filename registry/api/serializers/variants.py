"""Variants, their profiles and profile jobs as JSON, and accepted input."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry import models
from registry.api.serializers.fields import PercentField, StrictMixin


class VariantSerializer(serializers.ModelSerializer):
    """A variant.

    Needs ``normalized``, ``resident`` and ``warm`` (each by id) in its context.
    """

    application = serializers.SlugRelatedField("name", read_only=True)
    accuracy_normalized = serializers.SerializerMethodField(help_text="Percent of the application's best variant.")
    state = serializers.ChoiceField(
        choices=models.Variant.State.choices,
        read_only=True,
        help_text="From ready on, queries of its application are answered, by this variant or by another; warm_on says "
        "where this one can run now.",
    )
    alone = serializers.CharField(
        source="why_alone",
        read_only=True,
        help_text="Why its queries run alone, never two in one run; empty: they share runs.",
    )
    resident_on = serializers.SerializerMethodField(help_text="Devices that hold it or that the plan wants to hold it.")
    warm_on = serializers.SerializerMethodField(help_text="Devices that are up and can run it now.")

    class Meta:
        model = models.Variant
        fields = ["id", "name", "application", "accuracy", "accuracy_source", "accuracy_normalized", "state"]
        fields += ["detail", "pinned", "excluded", "digest", "size_bytes", "opset", "inspection", "alone"]
        fields += ["resident_on", "warm_on", "created"]

    def get_accuracy_normalized(self, variant: models.Variant) -> float | None:
        return self.context["normalized"].get(variant.pk)

    def get_resident_on(self, variant: models.Variant) -> list[str]:
        return self.context["resident"].get(variant.pk, [])

    def get_warm_on(self, variant: models.Variant) -> list[str]:
        return self.context["warm"].get(variant.pk, [])


def _accuracy(**kwargs: Any) -> PercentField:
    return PercentField(
        min_value=0,
        max_value=100,
        help_text="Percent in the application's metric; left out (null in a PATCH), it is measured. Up to 1 it needs "
        'the sign ("0.9%"), as it is mostly a fraction by mistake.',
        **kwargs,
    )


class VariantUploadSerializer(StrictMixin, serializers.Serializer):
    name = serializers.CharField(max_length=63, validators=[models.name_validator])
    file = serializers.FileField(help_text="An ONNX model.", allow_empty_file=True)
    accuracy = _accuracy(required=False)
    sample = serializers.FileField(
        required=False,
        help_text="Rows to try the model with, as .npz with an array for each input, or a query's V2 JSON; not kept. A "
        "validation set's rows are taken instead where there is one.",
    )


class VariantChangeSerializer(StrictMixin, serializers.Serializer):
    accuracy = _accuracy(allow_null=True, required=False)
    pinned = serializers.BooleanField(required=False, help_text="Resident on at least one device, where it fits.")
    excluded = serializers.BooleanField(required=False, help_text="Never planned.")

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not fields:
            raise serializers.ValidationError({"accuracy": ["is required where neither pinned nor excluded is given"]})
        if fields.get("pinned") and fields.get("excluded"):
            raise serializers.ValidationError({"pinned": ["cannot be true where excluded is true"]})
        return fields


class LatencySerializer(serializers.ModelSerializer):
    class Meta:
        model = models.ProfileLatency
        fields = ["size", "batch", "p50_ms", "p95_ms", "mean_ms", "samples"]
        extra_kwargs = {
            "size": {"help_text": "The size class; 0: the largest, and those that take as long, so any query's."}
        }


class ProfileSerializer(serializers.ModelSerializer):
    variant = serializers.SlugRelatedField("name", read_only=True)
    application = serializers.CharField(source="variant.application.name", read_only=True)
    latencies = LatencySerializer(many=True, read_only=True)
    max_batch = serializers.SerializerMethodField(
        help_text="1: the model's batch size is fixed at that, so it is served unbatched; null: as profiled."
    )

    class Meta:
        model = models.Profile
        fields = ["variant", "application", "device_type", "max_batch", "load_s", "memory_bytes", "measured"]
        fields += ["blocked", "latencies"]
        extra_kwargs = {
            "blocked": {
                "help_text": "Why plans leave the variant out on this device type; empty: they do not. "
                "Profiling it again lifts the block."
            }
        }

    def get_max_batch(self, profile: models.Profile) -> int | None:
        return profile.variant.inspection.get("max_batch")


class ProfileJobSerializer(serializers.ModelSerializer):
    variant = serializers.SlugRelatedField("name", read_only=True)
    application = serializers.CharField(source="variant.application.name", read_only=True)
    device = serializers.SlugRelatedField("ref", read_only=True, allow_null=True)

    class Meta:
        model = models.ProfileJob
        fields = ["id", "variant", "application", "device_type", "device", "reason", "state", "phase", "progress"]
        fields += ["detail", "attempts", "created", "started", "finished"]


class ProfileJobsSerializer(serializers.Serializer):
    jobs = ProfileJobSerializer(many=True)
