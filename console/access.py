"""The caller's role, for templates."""

from __future__ import annotations

from typing import Any

from registry.access.roles import role_of


def role(request: Any) -> dict[str, Any]:
    """Context processor: ``role`` of the account that is signed in."""
    return {"role": role_of(getattr(request, "user", None))}
