"""A fixed batch size with an optional timeout, as most serving systems offer it."""

from __future__ import annotations

import math

from .base import Decision, LaneView, Outcome
from .forming import IDLE, hold, last_call, nothing_viable, punctual_prefix, sift, start
from .options import Option


class FixedPolicy:
    """Waits for ``batch`` rows, or until the longest waiting query has waited ``timeout_ms``.

    Either way not longer than the first query can wait (the same last call as in ``proteus``): a query is never made
    late by waiting for company, nor by more company than it has time for. A batch size above what a turn may take
    counts as that.
    """

    OPTIONS: dict[str, Option] = {
        "batch": Option("rows a batch; unset: the most that the plan allows", 1, 4096, whole=True),
        "timeout_ms": Option("longest wait for a full batch; unset: as long as the deadline allows", 0, 600_000),
    }

    def __init__(self, batch: float | None = None, timeout_ms: float | None = None):
        self._batch = None if batch is None else int(batch)
        self._timeout_s = math.inf if timeout_ms is None else timeout_ms / 1000

    def decide(self, view: LaneView) -> Decision:
        if not view.queue:
            return IDLE
        candidate = view.candidates[0]
        limit = candidate.max_batch if self._batch is None else min(self._batch, candidate.max_batch)
        found = sift(view, limit)
        if not found.viable:
            return nothing_viable(view, found)
        count, rows = punctual_prefix(found, view.now, candidate.latency)
        if count == len(found.viable) and not found.more and rows < limit:
            until = last_call(found.viable[0].deadline, rows, candidate.latency) - view.blocking_s
            until = min(until, min(query.arrived for query in found.viable) + self._timeout_s)
            if view.now < until:
                return hold(view, found, until)
        return start(view, found, count, rows, limit)

    def observe(self, outcome: Outcome) -> None:
        """Nothing to learn: the batch size is fixed."""
