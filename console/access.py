"""The caller's role, and the repairs that need this caller, for templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.functional import SimpleLazyObject

from registry.access.roles import AccessRole, role_of

if TYPE_CHECKING:
    from scheduler.repairs.repair import Repair

# Repairs are imported by the first page that asks for them. Template tags bring this module into all of Django's
# processes, of which commands and workers would spend a fifth of their start on what no page of theirs shows.


def role_in(request: Any) -> AccessRole:
    """The role of the account that is signed in, read once a request."""
    if not hasattr(request, "account_role"):
        request.account_role = role_of(getattr(request, "user", None))
    return request.account_role


def role(request: Any) -> dict[str, Any]:
    return {"role": role_in(request)}


def found_repairs(request: Any) -> list[Repair]:
    from scheduler.repairs import listing

    if not hasattr(request, "found_repairs"):
        request.found_repairs = listing.current()
    return request.found_repairs


def repairs(request: Any) -> dict[str, Any]:
    """Context processor: the repairs of concern to the account that is signed in.

    ``repairs`` is the summary, ``needing`` are those that need a person. Both are read when a template asks for them. A
    page that lists no repairs shows the number of a shared look, as its websocket does: a look of its own would cost
    more than the rest of the page.
    """
    from scheduler.repairs import listing

    account = role_in(request)
    if account == AccessRole.ANYONE:
        return {}
    return {
        "repairs": SimpleLazyObject(lambda: listing.summary(_known(request), account)),
        "needing": SimpleLazyObject(lambda: listing.needing(_known(request), account)),
    }


def _known(request: Any) -> list[Repair]:
    from scheduler.repairs import listing

    return request.found_repairs if hasattr(request, "found_repairs") else listing.shared()
