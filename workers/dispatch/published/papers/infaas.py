"""INFaaS (ATC '21): queries go to active instances first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from ...stack import published
from ..routing import Router


class ActiveFirstRouter(Router):
    """Prefers active instances (Section 4.1).

    Overloaded and interfered instances get queries only where no other is active. Among active ones it follows the
    plan's shares, where the paper takes the least loaded worker. Where the device that is next would be late and
    another one would not, the query goes to the one that is expected to answer first. The next one pays all the same,
    so that no burst of queries reaches it once it has recovered.
    """

    active_first = True

    def pick(
        self,
        application: str,
        rows: int,
        able: Collection[Hashable],
        budget_s: float,
        expected_s: Callable[[Hashable], float],
        queued: Callable[[Hashable], int],
    ) -> Hashable | None:
        following = super().pick(application, rows, able, budget_s, expected_s, queued)
        if following is None or expected_s(following) <= budget_s:
            return following
        shares, _ = self._orders[application]
        expected = [(expected_s(device), device) for device, _ in shares if device in able]
        soonest_s, device = min(expected, key=lambda item: item[0])
        return device if soonest_s <= budget_s else following


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
