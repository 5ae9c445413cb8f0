"""INFaaS (ATC '21): queries go to active instances first."""

from __future__ import annotations

from ...stack import published
from ..routing import LeastCompletionRouter


class ActiveFirstRouter(LeastCompletionRouter):
    """Prefers active instances (Section 4.1).

    Overloaded and interfered instances get queries only where no other is active. Among active ones it follows the
    plan's shares, where the paper takes the least loaded worker.
    """

    active_first = True


STACKS = (
    published(
        "infaas-accuracy",
        "nexus",
        "active-first",
        "Variants are copied, upgraded and downgraded one step at a time, as in INFaaS (ATC '21).",
    ),
    published(
        "infaas-greedy",
        "nexus",
        "active-first",
        "Instances are copied, upgraded or removed, whichever is cheapest, as in INFaaS (ATC '21).",
    ),
)
POLICIES, ROUTERS = {}, {"active-first": ActiveFirstRouter}
