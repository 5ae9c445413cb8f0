"""The stack that a simulation runs: one of the live system's or of the papers', perhaps with another batch policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scheduler.stacks.registry import PAPERS, SIMULATED
from workers.dispatch import bindings
from workers.dispatch.published.policy import BatchPolicy
from workers.dispatch.published.routing import Router
from workers.dispatch.stack import LATE, Stack
from workers.dispatch.stacks import DEFAULT, STACKS

from .tables import ScenarioError, hint

#: by name, the default first
ALL = {**STACKS, **SIMULATED}
#: the batch policies of published stacks by name
POLICIES: dict[str, Callable[[], BatchPolicy]] = dict(bindings.POLICIES)
#: by name: makes a router from the scenario's seed; those that serve live come first
ROUTERS: dict[str, Callable[[int], Router]] = {
    name: lambda _seed, router=router: router() for name, router in bindings.ROUTERS.items()
}
for _paper in PAPERS.values():
    POLICIES |= _paper.policies
    ROUTERS |= _paper.routers


def choose(stack: str | None = None, batching: str | None = None) -> Stack:
    """Return the stack of that name (None: the default), with another batch policy if named.

    Raises:
        ScenarioError: an unknown name, or a batch policy for late binding, which forms batches itself.
    """
    name = DEFAULT if stack is None else stack
    faults = [
        f"{field}: must be one of {', '.join(names)}, not {value!r}{hint(value, names)}"
        for field, value, names in (("stack", name, list(ALL)), ("batching", batching, list(POLICIES)))
        if value is not None and value not in names
    ]
    if not faults and batching is not None and ALL[name].binding == LATE:
        faults.append(f"batching: {name} forms batches itself")
    if faults:
        raise ScenarioError(faults)
    return ALL[name] if batching is None else replace(ALL[name], batching=batching)
