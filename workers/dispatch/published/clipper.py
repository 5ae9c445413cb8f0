"""Clipper's batching: additive increase, multiplicative decrease (NSDI 2017, Section 4.3.1)."""

from __future__ import annotations

from .forming import classify, start, wait
from .policy import BatchPolicy, Decision, QueueView

#: rows by which the cap grows when a full batch was in time
INCREASE = 1.0
#: factor of the cap after a miss
BACKOFF = 0.9


class ClipperPolicy(BatchPolicy):
    """Caps batches: a row more while they meet the SLO, 10% less after a miss.

    Reactive, as published: it looks neither at the length of the queue nor at deadlines, so a batch may make its first
    query late; that is the miss it learns from. The device is never idle while a query waits. A query that could not be
    in time even alone is dropped; where late ones are served, it runs when nothing viable waits, and is no miss, since
    no batch size would have helped.

    Only a batch that reached the cap lets it grow: a smaller one says nothing about the next larger. The cap stays
    between 1 and the plan's largest batch.
    """

    def __init__(self) -> None:
        self._cap = 1.0
        self._limit = self._cap
        self._late_by_choice = 0

    @property
    def cap(self) -> int:
        return max(1, int(self._cap))

    def decide(self, view: QueueView) -> Decision:
        self._limit = view.candidates[0].max_batch
        cap = min(self.cap, self._limit)
        classified = classify(view, cap)
        if classified.viable:
            decision = start(view, classified, len(classified.viable), classified.rows, cap)
        else:
            decision = wait(view, classified)
        self._late_by_choice = len(decision.run) - len(classified.viable)
        return decision

    def observe(self, rows: int, late: int) -> None:
        if late > self._late_by_choice:
            self._cap = max(1.0, min(self._cap, self._limit) * BACKOFF)
        elif rows >= min(self.cap, self._limit):
            self._cap = min(self._limit, self._cap + INCREASE)
