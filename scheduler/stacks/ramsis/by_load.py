"""How the baselines of RAMSIS' Section 7 batch and route. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

import msgspec

from workers.dispatch.published.clipper import ClipperPolicy
from workers.dispatch.published.papers.ramsis import in_order, place, present_policy
from workers.dispatch.published.policy import BatchPolicy, Decision, QueueView
from workers.dispatch.published.routing import Router


class ByLoadPolicy(BatchPolicy):
    """Runs one variant for all queries of a load: Jellyfish+ and ModelSwitching.

    Batches are Clipper's adaptive ones. Above all loads that the plan has a variant for, the fastest one runs.
    """

    def __init__(self) -> None:
        self._batching = ClipperPolicy()

    def decide(self, view: QueueView) -> Decision:
        candidates = in_order(view)
        chosen = candidates[place(view, present_policy(view), candidates, 1, 0.0)]
        return self._batching.decide(msgspec.structs.replace(view, candidates=[chosen]))

    def observe(self, rows: int, late: int) -> None:
        """See :class:`ClipperPolicy`."""
        self._batching.observe(rows, late)


class ShortestQueueRouter(Router):
    """Chooses the device with the fewest rows.

    Where the next one by the plan's shares is among several such devices, it is chosen.
    """

    def pick(
        self,
        application: str,
        rows: int,
        able: Collection[Hashable],
        budget_s: float,
        expected_s: Callable[[Hashable], float],
        queued: Callable[[Hashable], int],
    ) -> Hashable | None:
        """See :class:`Router`. Other ties go to the first in the routes."""
        following = super().pick(application, rows, able, budget_s, expected_s, queued)
        if following is None:
            return None
        chosen, fewest = following, queued(following)
        for device, _ in self._orders[application][0]:
            if not fewest:
                break
            if device in able and (rows_there := queued(device)) < fewest:
                chosen, fewest = device, rows_there
        return chosen
