"""Creates the binding of a stack."""

from __future__ import annotations

from collections.abc import Callable

from .binding import Binding
from .late.binding import LateBinding
from .published.binding import PublishedBinding
from .published.clipper import ClipperPolicy
from .published.nexus import NexusPolicy
from .published.policy import BatchPolicy
from .published.routing import Router
from .stack import LATE
from .stacks import LIVE, PAPERS, STACKS

#: by name: makes the batch policy of one queue
POLICIES: dict[str, Callable[[], BatchPolicy]] = {"clipper": ClipperPolicy, "nexus": NexusPolicy}
#: by name
ROUTERS: dict[str, Callable[[], Router]] = {"shares": Router}
for _paper in PAPERS:
    POLICIES |= _paper.POLICIES
    ROUTERS |= _paper.ROUTERS


class UnknownStack(ValueError):
    pass


def create(stack: str) -> Binding:
    known = STACKS.get(stack)
    if known is None:
        raise UnknownStack(f"stack: {stack!r} is not one of {', '.join(LIVE)}")
    if known.binding == LATE:
        return LateBinding()
    return PublishedBinding(ROUTERS[known.routing](), POLICIES[known.batching])
