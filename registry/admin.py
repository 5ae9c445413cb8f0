"""The registry in Django's admin site, read only, and accounts.

Changes are made by API and console.
"""

from __future__ import annotations

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from registry import models
from registry.access.roles import BY_LABEL, role_of
from registry.webhooks.rows import Webhook


class ReadOnlyAdmin(ModelAdmin):
    """Shows every field except for secrets and their hashes."""

    exclude = ("credential_hash", "key_hash", "token_hash", "channel", "secret")

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
    "group",
    "slo_ms",
    "late",
    "state",
    "created",
    filters=("state", "group"),
    search=("name", "group"),
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
_register(models.ApiKey, "name", "prefix", "applications", "rate", "share", "expires", "created")
_register(models.ApiToken, "name", "user", "role", "prefix", "expires", "last_used", "created", filters=("role",))
_register(
    models.AuditEntry,
    "at",
    "actor",
    "action",
    "kind",
    "ref",
    "origin",
    "address",
    filters=("kind", "action"),
    search=("actor", "ref"),
)
_register(Webhook, "name", "url", "enabled", "tried", "status", "failures")
_register(models.JoinToken, "name", "kind", "auto_approve", "expires", "uses", "used", "own_box", "created")


def _roles(required: bool) -> forms.ModelMultipleChoiceField:
    return forms.ModelMultipleChoiceField(
        Group.objects.filter(name__in=BY_LABEL),
        required=required,
        label="Roles",
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="viewer: sees everything but keys; model owner: also uploads and changes; operator: everything. "
        "The highest counts; an account without one cannot sign in.",
    )


class AccountForm(UserChangeForm):
    """An account with its role."""

    groups = _roles(required=False)


class NewAccountForm(UserCreationForm):
    """A new account, which needs a role and a password: nobody could sign in without."""

    usable_password = None
    groups = _roles(required=True)


admin.site.unregister((User, Group))


@admin.register(User)
class AccountAdmin(UserAdmin, ModelAdmin):
    """Accounts: names, passwords and roles.

    Operators change them; superusers are changed by superusers alone.
    """

    form = AccountForm
    change_password_form = AdminPasswordChangeForm
    add_form = NewAccountForm
    add_form_template = "admin/change_form.html"
    add_fieldsets = ((None, {"fields": ("username", "password1", "password2", "groups")}),)
    fieldsets = ((None, {"fields": ("username", "password", "groups", "is_active", "last_login", "date_joined")}),)
    list_display = ("username", "roles", "is_active", "is_superuser", "last_login")
    list_filter = ("is_active", "groups")
    search_fields = ("username",)
    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")

    def get_queryset(self, request):
        """Accounts with their groups, which the list shows as roles."""
        return super().get_queryset(request).prefetch_related("groups")

    @admin.display(description="Role")
    def roles(self, account: User) -> str:
        """The role that counts."""
        return role_of(account).label

    def has_change_permission(self, request, obj=None) -> bool:
        """Whether the caller may change accounts, or this one."""
        return super().has_change_permission(request, obj) and _may_change(request.user, obj)

    def has_delete_permission(self, request, obj=None) -> bool:
        """Whether the caller may delete accounts, or this one."""
        return super().has_delete_permission(request, obj) and _may_change(request.user, obj)


def _may_change(caller: User, account: User | None) -> bool:
    return account is None or caller.is_superuser or not account.is_superuser
