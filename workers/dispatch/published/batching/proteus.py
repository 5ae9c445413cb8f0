"""Proteus' adaptive batching (Proteus, Section 5): proactive and non-work-conserving."""

from __future__ import annotations

from .base import Decision, LaneView, Outcome
from .forming import IDLE, hold, last_call, nothing_viable, punctual_prefix, sift, start


class ProteusPolicy:
    """Waits on purpose for a larger batch, and starts just before the first query would be in danger.

    With q rows queued it waits for one more until T_max_wait(q+1) = T_exp(1) - T_process(q+1), less ``blocking_s`` on
    a shared device, and then runs what there is. It runs at once what cannot grow: a full batch, or one behind which
    the next query does not fit. Where the queue holds more than the first query can wait for, the largest prefix that
    ends by its deadline runs: no query is late that a smaller batch would have served in time.

    ``shed`` drops exactly the hopeless (see ``forming``). ``serve`` runs them in the gaps: while the lane waits on
    purpose, if they are done before the wait ends; as fill of a batch that leaves nobody behind; or when nothing else
    waits.
    """

    def decide(self, view: LaneView) -> Decision:
        if not view.queue:
            return IDLE
        candidate = view.candidates[0]
        found = sift(view, candidate.max_batch)
        if not found.viable:
            return nothing_viable(view, found)
        count, rows = punctual_prefix(found, view.now, candidate.latency)
        if count == len(found.viable) and not found.more and rows < candidate.max_batch:
            until = last_call(found.viable[0].deadline, rows, candidate.latency) - view.blocking_s
            if view.now < until:
                return hold(view, found, until)
        return start(view, found, count, rows, candidate.max_batch)

    def observe(self, outcome: Outcome) -> None:
        """Nothing to learn: every decision follows from the queue and the profile."""
