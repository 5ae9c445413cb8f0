"""The stack that a simulation runs.

It is one of the live system's or of the papers', with parts replaced where the command names others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scheduler.stacks.registry import PAPERS, SIMULATED
from workers.dispatch import bindings
from workers.dispatch.published.policy import BatchPolicy
from workers.dispatch.published.routing import LeastCompletionRouter, Router
from workers.dispatch.stack import LATE, PUBLISHED, Stack
from workers.dispatch.stacks import DEFAULT, STACKS

from .ablations import ROUTINGS
from .tables import ScenarioError, hint

#: by name, the default first
ALL = {**STACKS, **SIMULATED}
#: the batch policies of published stacks by name
POLICIES: dict[str, Callable[[], BatchPolicy]] = dict(bindings.POLICIES)
#: by name: makes a router from the scenario's seed; those that serve live come first
ROUTERS: dict[str, Callable[[int], Router]] = {
    **{name: lambda _seed, router=router: router() for name, router in bindings.ROUTERS.items()},
    "least-completion": lambda _seed: LeastCompletionRouter(),
}
for _paper in PAPERS.values():
    POLICIES |= _paper.policies
    ROUTERS |= _paper.routers
#: routing of a late stack whose batch policy is replaced, and batch policy of one whose routing is: these form their
#: batches in the devices' queues
EARLY, EARLY_BATCHING = "least-completion", "nexus"


def routings() -> list[str]:
    return [*ROUTINGS, *ROUTERS]


def choose(stack: str | None = None, batching: str | None = None, routing: str | None = None) -> Stack:
    """Return the stack of that name, with another batch policy or routing if named.

    Args:
        stack: its name; None: the default.

    Raises:
        ScenarioError: an unknown name, or names that do not go together.
    """
    name = DEFAULT if stack is None else stack
    known = ALL.get(name, ALL[DEFAULT])
    if routing is None:
        routing = EARLY if known.binding == LATE and batching not in (None, known.batching) else known.routing
    if batching is None:
        batching = EARLY_BATCHING if known.binding == LATE and routing not in ROUTINGS else known.batching
    faults = [
        f"{field}: must be one of {', '.join(names)}, not {value!r}{hint(value, names)}"
        for field, value, names in (
            ("stack", name, list(ALL)),
            ("batching", batching, [ALL[DEFAULT].batching, *POLICIES]),
            ("routing", routing, routings()),
        )
        if value not in names
    ]
    late = ALL[DEFAULT].batching
    if (routing in ROUTINGS) != (batching == late) and not faults:
        faults.append(f"batching: {late} forms batches with late binding alone, and the routing is {routing}")
    if faults:
        raise ScenarioError(faults)
    return replace(known, batching=batching, routing=routing, binding=LATE if routing in ROUTINGS else PUBLISHED)
