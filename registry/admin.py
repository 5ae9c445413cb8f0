"""Accounts and passwords in Django's admin site; all else is the console's."""

from __future__ import annotations

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from registry.access.roles import BY_LABEL, role_of


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
    fieldsets = ((None, {"fields": ("username", "password", "groups", "is_active")}),)
    list_display = ("username", "roles", "is_active", "is_superuser")
    list_filter = ("is_active", "groups")
    search_fields = ("username",)
    filter_horizontal = ()

    def get_queryset(self, request):
        return super().get_queryset(request).prefetch_related("groups")

    @admin.display(description="Role")
    def roles(self, account: User) -> str:
        return role_of(account).label

    def has_change_permission(self, request, obj=None) -> bool:
        return super().has_change_permission(request, obj) and _may_change(request.user, obj)

    def has_delete_permission(self, request, obj=None) -> bool:
        return super().has_delete_permission(request, obj) and _may_change(request.user, obj)


def _may_change(caller: User, account: User | None) -> bool:
    return account is None or caller.is_superuser or not account.is_superuser
