"""Django's permissions as the access table gives them, for the admin site."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend

from registry.access import table
from registry.access.roles import AccessRole, role_of


class RoleBackend(ModelBackend):
    def user_can_authenticate(self, user: Any) -> bool:
        return super().user_can_authenticate(user) and role_of(user) > AccessRole.ANYONE

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        app, _, codename = perm.partition(".")
        _, _, model = codename.partition("_")
        needed = table.MODELS.get(f"{app}.{model}")
        return needed is not None and role_of(user_obj) >= needed

    def has_module_perms(self, user_obj: Any, app_label: str) -> bool:
        role = role_of(user_obj)
        return any(role >= least for name, least in table.MODELS.items() if name.startswith(f"{app_label}."))
