"""The ways of routing by name, for the gateway and the simulator alike. All offer
:class:`workers.dispatch.routing.router.QueryRouter`, and know neither asyncio nor the clock."""

from __future__ import annotations

from collections.abc import Callable

from .least_completion import Router
from .plan_only import SharesRouter
from .router import QueryRouter

#: queries are held and granted to devices by :mod:`workers.dispatch`; the router is for those that cannot be
LATE_BINDING = "late-binding"
#: what a plan follows that names none
DEFAULT = LATE_BINDING

_ROUTERS: dict[str, Callable[[int], QueryRouter]] = {
    LATE_BINDING: lambda seed: Router(),
    "least-completion": lambda seed: Router(),
    "shares": lambda seed: SharesRouter(),
}


class UnknownRouting(ValueError):
    """No router has that name; the message lists those there are."""


def names() -> list[str]:
    """The names, the default first."""
    return list(_ROUTERS)


def create(name: str, seed: int = 0) -> QueryRouter:
    """A router; ``seed`` is for those that choose by chance.

    Raises:
        UnknownRouting: no such router.
    """
    if name not in _ROUTERS:
        raise UnknownRouting(f"routing: {name!r} is not one of {', '.join(_ROUTERS)}")
    return _ROUTERS[name](seed)
