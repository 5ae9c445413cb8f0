"""The registry in Django's admin, read only: API and console make changes."""

from __future__ import annotations

from django.contrib import admin
from unfold.admin import ModelAdmin

from registry import models


class ReadOnlyAdmin(ModelAdmin):
    """Shows every field but hashes of secrets."""

    exclude = ("credential_hash", "key_hash", "token_hash", "channel")

    def has_add_permission(self, request) -> bool:
        return False

    def has_change_permission(self, request, obj=None) -> bool:
        return False

    def has_delete_permission(self, request, obj=None) -> bool:
        return False


def _register(model: type, *columns: str, filters: tuple[str, ...] = (), search: tuple[str, ...] = ()) -> None:
    admin.site.register(
        model,
        type(
            f"{model.__name__}Admin",
            (ReadOnlyAdmin,),
            {
                "list_display": columns,
                "list_filter": filters,
                "search_fields": search,
            },
        ),
    )


_register(
    models.Application,
    "name",
    "slo_ms",
    "late",
    "state",
    "created",
    filters=("state",),
    search=("name",),
)
_register(models.ValidationSet, "application", "metric", "rows", "size_bytes", "created")
_register(
    models.Variant,
    "name",
    "application",
    "accuracy",
    "accuracy_source",
    "state",
    "size_bytes",
    "created",
    filters=("state", "application"),
    search=("name", "digest"),
)
_register(models.Node, "name", "state", "connected", "last_seen", filters=("state",), search=("name",))
_register(models.Gateway, "name", "address", "state", "connected", "last_seen", filters=("state",), search=("name",))
_register(
    models.Device,
    "ref",
    "kind",
    "type",
    "state",
    "plan_version",
    "changed",
    filters=("state", "kind", "type"),
    search=("ref",),
)
_register(
    models.ProfileJob,
    "id",
    "variant",
    "device_type",
    "reason",
    "state",
    "phase",
    "progress",
    "created",
    filters=("state", "reason", "device_type"),
)
_register(
    models.Profile,
    "variant",
    "device_type",
    "load_s",
    "memory_bytes",
    "measured",
    "blocked",
    filters=("device_type",),
)
_register(models.ProfileLatency, "profile", "batch", "p50_ms", "p95_ms", "mean_ms", "samples")
_register(models.Fault, "at", "variant", "device", "cause", "detail", filters=("cause", "device_type"))
_register(models.ApiKey, "name", "prefix", "created")
_register(models.JoinToken, "name", "auto_approve", "created")
