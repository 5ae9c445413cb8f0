"""Proteus' adaptive batching, which waits on purpose (Proteus, Section 5)."""

from __future__ import annotations

import math

from ...latency import LatencyModel
from ...stack import published
from ..forming import classify, punctual_prefix, start, wait
from ..policy import BatchPolicy, Decision, QueueView


class ProteusPolicy(BatchPolicy):
    """Waits for a larger batch until just before the first query would be in danger.

    With q rows queued it waits for one more until T_max_wait(q+1) = T_exp(1) - T_process(q+1), less ``slack_s``, and
    then runs what there is. It runs at once what cannot grow: a full batch, or one behind which the next query does not
    fit. Where the queue holds more than the first query can wait for, the largest prefix that ends by its deadline
    runs: no query is late that a smaller batch would have served in time.

    Exactly the hopeless are dropped (see ``forming``). Where late ones are served, they run while the queue waits on
    purpose, if they are done before the wait ends; as fill of a batch that leaves no viable one behind; or when nothing
    else waits.
    """

    def decide(self, view: QueueView) -> Decision:
        candidate = view.candidates[0]
        classified = classify(view, candidate.max_batch)
        if not classified.viable:
            return wait(view, classified)
        count, rows = punctual_prefix(classified, view.now, candidate.latency)
        if count == len(classified.viable) and not classified.more and rows < candidate.max_batch:
            until = _last_start(classified.viable[0].deadline, rows, candidate.latency) - view.slack_s
            if view.now < until:
                return wait(view, classified, until)
        return start(view, classified, count, rows, candidate.max_batch)


def _last_start(deadline: float, rows: int, latency: LatencyModel) -> float:
    """The latest start of a batch of ``rows`` that waits for one row more.

    Early enough, too, for the rows at hand where these were measured slower than one row more.
    """
    seconds = max(latency.seconds(rows + 1), latency.seconds(rows))
    last = deadline - seconds
    # The difference is rounded: a start at that very moment must not end one ulp after the deadline.
    while last + seconds > deadline:
        last = math.nextafter(last, -math.inf)
    return last


STACKS = (
    published(
        "proteus",
        "proteus",
        "shares",
        "The most accurate variants that serve the demand, queries by their shares, as in Proteus (ASPLOS '24).",
    ),
)
POLICIES, ROUTERS = {"proteus": ProteusPolicy}, {}
