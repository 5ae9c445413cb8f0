"""Creates the binding of a stack."""

from __future__ import annotations

from .binding import Binding
from .late.binding import LateBinding
from .published.batching import POLICIES
from .published.binding import PublishedBinding
from .published.routing import ROUTERS
from .stacks import LATE, LIVE, STACKS


class UnknownStack(ValueError):
    """No stack has that name."""


def create(stack: str) -> Binding:
    """The binding of a stack to serve with, without applications and devices.

    Raises:
        UnknownStack: there is none of that name.
    """
    known = STACKS.get(stack)
    if known is None or not known.live:
        raise UnknownStack(f"stack: {stack!r} is not one of {', '.join(LIVE)}")
    if known.binding == LATE:
        return LateBinding()
    return PublishedBinding(ROUTERS[known.routing](), POLICIES[known.batching])
