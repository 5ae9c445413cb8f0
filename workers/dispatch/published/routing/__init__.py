"""Routers of published stacks, by name: which device gets a query when it arrives.

``shares`` follows the plan alone. ``least-completion`` also asks its caller when a device would answer. The simulator
adds others (see ``scheduler/simulation/routers``). Pure: imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable

from .router import LeastCompletionRouter, Router, SharesRouter

_ROUTERS: dict[str, Callable[[], Router]] = {"least-completion": LeastCompletionRouter, "shares": SharesRouter}


class UnknownRouting(ValueError):
    """No router has that name; the message lists the known ones."""


def names() -> list[str]:
    """Names of all routers."""
    return list(_ROUTERS)


def create(name: str) -> Router:
    """A router without routes.

    Raises:
        UnknownRouting: no router has that name.
    """
    if name not in _ROUTERS:
        raise UnknownRouting(f"routing: {name!r} is not one of {', '.join(_ROUTERS)}")
    return _ROUTERS[name]()
