"""The stack that a simulation runs.

It is one of the live system's, with parts replaced where the command names others.
"""

from __future__ import annotations

from dataclasses import replace

from workers.dispatch.stacks import DEFAULT, LATE, PUBLISHED, STACKS, Stack

from .ablations import ROUTINGS
from .policies import POLICIES
from .routers import ROUTERS
from .tables import ScenarioError, hint

#: routing of a late stack whose batch policy is replaced: other policies form their batches in the devices' queues
EARLY = "least-completion"


def routings() -> list[str]:
    """Return all that a simulation may route by.

    These are the routers, and late binding with parts removed.
    """
    return [*ROUTINGS, *ROUTERS]


def choose(stack: str | None = None, batching: str | None = None, routing: str | None = None) -> Stack:
    """Return the stack of that name, with another batch policy or routing if named.

    Args:
        stack: its name; None: the default.

    Raises:
        ScenarioError: an unknown name, or names that do not go together.
    """
    name = DEFAULT if stack is None else stack
    known = STACKS.get(name, STACKS[DEFAULT])
    if routing is None:
        routing = EARLY if known.binding == LATE and batching not in (None, known.batching) else known.routing
    if batching is None:
        batching = known.batching
    faults = [
        f"{field}: must be one of {', '.join(names)}, not {value!r}{hint(value, names)}"
        for field, value, names in (
            ("stack", name, list(STACKS)),
            ("batching", batching, list(POLICIES)),
            ("routing", routing, routings()),
        )
        if value not in names
    ]
    if routing in ROUTINGS and batching != "nereus":
        faults.append(f"batching: with routing {routing} it must be nereus, which forms batches there")
    if faults:
        raise ScenarioError(faults)
    return replace(known, batching=batching, routing=routing, binding=LATE if routing in ROUTINGS else PUBLISHED)
