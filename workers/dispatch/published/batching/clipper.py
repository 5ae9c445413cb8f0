"""Clipper's batching: additive increase, multiplicative decrease (Clipper, NSDI 2017, Section 4.3.1)."""

from __future__ import annotations

from .base import Decision, LaneView, Outcome
from .forming import IDLE, nothing_viable, sift, start

#: rows by which the cap grows when a full batch was in time
INCREASE = 1.0
#: factor of the cap after a miss
BACKOFF = 0.9


class ClipperPolicy:
    """A cap on the batch that grows by a row while batches meet the SLO and shrinks by 10% on a miss.

    Reactive, as published: it asks neither how long the queue is nor when its queries expire, so a batch may make its
    first query late; that is the miss it learns from. It keeps the device busy whenever something waits. ``shed`` drops
    what could not be in time even alone; ``serve`` runs that when nothing viable waits, and does not count it as a
    miss, since no batch size would have helped.

    Only a batch that reached the cap lets it grow: a smaller one says nothing about the next larger. The cap stays
    between 1 and what a turn may take.
    """

    def __init__(self) -> None:
        self._cap = 1.0
        self._limit = self._cap
        self._late_by_choice = 0

    @property
    def cap(self) -> int:
        """Rows that a batch may take now."""
        return max(1, int(self._cap))

    def decide(self, view: LaneView) -> Decision:
        if not view.queue:
            return IDLE
        candidate = view.candidates[0]
        self._limit = candidate.max_batch
        cap = min(self.cap, candidate.max_batch)
        found = sift(view, cap)
        if found.viable:
            decision = start(view, found, len(found.viable), found.rows, cap)
            self._late_by_choice = len(decision.run) - len(found.viable)
        else:
            decision = nothing_viable(view, found)
            self._late_by_choice = len(decision.run)
        return decision

    def observe(self, outcome: Outcome) -> None:
        """Grow or back off; ``late`` beyond those that were hopeless from the start is a miss."""
        if outcome.late > self._late_by_choice:
            self._cap = max(1.0, min(self._cap, self._limit) * BACKOFF)
        elif outcome.rows >= min(self.cap, self._limit):
            self._cap = min(self._limit, self._cap + INCREASE)
