"""API keys and API tokens as JSON, and accepted input."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from rest_framework import serializers

from registry import models
from registry.access.roles import BY_LABEL
from registry.api.serializers.fields import CountLimitField, ExpiryField, NumberField, OneOfField, StrictMixin


class ApiKeySerializer(StrictMixin, serializers.ModelSerializer):
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
    burst = CountLimitField(help_text="Burst size in queries; null: those of one second.")
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
        fields = ["name", "prefix", *models.ApiKey.LIMITS, "created"]
        read_only_fields = ["prefix", "created"]
        extra_kwargs = {"name": {"validators": [models.name_validator]}}

    def validate_applications(self, names: list[str] | None) -> list[str] | None:
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
    class Meta(ApiKeySerializer.Meta):
        read_only_fields = ["name", "prefix", "created"]


class NewApiKeySerializer(ApiKeySerializer):
    key = serializers.CharField(read_only=True)

    class Meta(ApiKeySerializer.Meta):
        fields = [*ApiKeySerializer.Meta.fields, "key"]


class AccountField(serializers.SlugRelatedField):
    def __init__(self, **kwargs: Any):
        super().__init__("username", queryset=User.objects.filter(is_active=True), **kwargs)

    def to_internal_value(self, data: Any) -> User:
        if "\0" in str(data):
            # PostgreSQL compares NUL with nothing.
            self.fail("does_not_exist", slug_name=self.slug_field, value=data)
        return super().to_internal_value(data)


class ApiTokenSerializer(StrictMixin, serializers.ModelSerializer):
    user = AccountField(required=False)
    role = OneOfField(list(BY_LABEL), help_text="The token's role; it never permits more than its account's.")
    expires = ExpiryField(allow_null=True, required=False)

    class Meta:
        model = models.ApiToken
        fields = ["name", "user", "role", "prefix", "expires", "last_used", "created"]
        read_only_fields = ["prefix", "last_used", "created"]
        extra_kwargs = {"name": {"validators": [models.name_validator]}}


class NewApiTokenSerializer(ApiTokenSerializer):
    token = serializers.CharField(read_only=True)

    class Meta(ApiTokenSerializer.Meta):
        fields = [*ApiTokenSerializer.Meta.fields, "token"]
