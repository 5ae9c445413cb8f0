"""Routers of published stacks: which device gets a query when it arrives.

Entry point: :data:`ROUTERS`. ``shares`` follows the plan alone; ``least-completion`` also asks its caller when a device
would answer, ``active-first`` avoids overloaded and interfered devices besides, ``shortest-queue`` asks how much it has
to do. The simulator adds others (``scheduler/simulation/routers``).
Pure. Imports no other package of Nereus.
"""

from __future__ import annotations

from collections.abc import Callable

from .router import ActiveFirstRouter, LeastCompletionRouter, Router, ShortestQueueRouter

#: by name
ROUTERS: dict[str, Callable[[], Router]] = {
    "active-first": ActiveFirstRouter,
    "least-completion": LeastCompletionRouter,
    "shares": Router,
    "shortest-queue": ShortestQueueRouter,
}
