"""Roles of accounts, kept as Django groups of the same names."""

from __future__ import annotations

import enum
from typing import Any


class AccessRole(enum.IntEnum):
    """Least to most; each role may do what those before it may."""

    ANYONE = 0
    VIEWER = 1
    OWNER = 2
    OPERATOR = 3

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    AccessRole.ANYONE: "anyone",
    AccessRole.VIEWER: "viewer",
    AccessRole.OWNER: "model owner",
    AccessRole.OPERATOR: "operator",
}
#: roles that an account or token can have, by label
BY_LABEL = {role.label: role for role in AccessRole if role is not AccessRole.ANYONE}


def role_of(user: Any) -> AccessRole:
    """The role of a Django user now; superusers are operators.

    Reads the groups each time, so that a role that was taken away is gone at once.
    """
    if user is None or not getattr(user, "is_active", False) or not hasattr(user, "groups"):
        return AccessRole.ANYONE
    if user.is_superuser:
        return AccessRole.OPERATOR
    if user.pk is None:
        return AccessRole.ANYONE
    # All of the few groups, so that those of many accounts can be prefetched.
    return max((BY_LABEL.get(group.name, AccessRole.ANYONE) for group in user.groups.all()), default=AccessRole.ANYONE)


def caller_role(request: Any) -> AccessRole:
    """The role of a request: its user's, or what its API token leaves of that."""
    role = role_of(getattr(request, "user", None))
    limit = getattr(getattr(request, "auth", None), "role", None)
    return role if limit is None else min(role, BY_LABEL.get(limit, AccessRole.ANYONE))
