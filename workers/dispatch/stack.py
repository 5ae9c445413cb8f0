"""A stack: a name for an allocation strategy, a binding and a batch policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DEFAULT = "nereus"
LATE, PUBLISHED = "late", "published"
#: ``routing`` of stacks with late binding, which have no router
LATE_BINDING = "late-binding"


@dataclass(frozen=True)
class Stack:
    """One way to serve.

    Attributes:
        strategy: the allocation strategy that makes the plans (see ``scheduler/allocation``).
        binding: ``late``: queries wait until a device is nearly free; ``published``: a router assigns each query to a
            device on arrival.
        routing: the router by which devices are chosen.
        batching: the batch policy.
        title: one sentence for operators; "": of one that only simulations run.
    """

    name: str
    strategy: str
    binding: Literal["late", "published"]
    routing: str
    batching: str
    title: str


def published(name: str, batching: str, routing: str, title: str = "") -> Stack:
    return Stack(name, name, PUBLISHED, routing, batching, title)
