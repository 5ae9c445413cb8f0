"""Our own policy: Proteus' deliberate waiting, and relief by a faster warm variant when the planned one cannot keep up.

A plan is made for seconds; queues build up within milliseconds. Between a burst's first query and the next plan this
policy lowers accuracy by itself, batch by batch, and only for as long as it must.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from workers.dispatch.published.batching.base import Candidate, Decision, LaneView, Outcome, Waiting
from workers.dispatch.published.batching.forming import IDLE, punctual_prefix, sift, start
from workers.dispatch.published.batching.proteus import ProteusPolicy

#: part of its time that a query may spend waiting on purpose. The rest is ample for the batch that a plan counts on (at
#: most half of the SLO), and what stalls a device for a moment then makes nobody late.
WAIT_SHARE = 0.5
#: rows of the queue that the look ahead goes through; a backlog beyond is a backlog whatever comes after
LOOK_AHEAD_ROWS = 256


class NereusPolicy:
    """The planned variant (the first candidate) as long as it clears the queue in time, as ``proteus`` batches it;
    else, batch by batch, the most accurate candidate that does, and if none does the one with the highest throughput.

    What counts is every query that at least one candidate could still answer in time. A relief batch runs at once: a
    backlog is no time to wait for company. And a deliberate wait ends when half of the first query's time is gone,
    where ``proteus`` goes to the edge.
    """

    def __init__(self) -> None:
        self._waiting = ProteusPolicy()

    def decide(self, view: LaneView) -> Decision:
        if not view.queue:
            return IDLE
        planned = view.candidates[0]
        chosen = planned if len(view.candidates) == 1 else choose(view.queue, view.candidates, view.now)
        if chosen is planned:
            return self._wait_or_run(view)
        view = msgspec.structs.replace(view, candidates=[chosen])
        found = sift(view, chosen.max_batch)
        if not found.viable:
            return self._waiting.decide(view)
        count, rows = punctual_prefix(found, view.now, chosen.latency)
        return start(view, found, count, rows, chosen.max_batch)

    def _wait_or_run(self, view: LaneView) -> Decision:
        decision = self._waiting.decide(view)
        if decision.run or decision.wait_until == math.inf:
            return decision
        dropped = set(decision.drop)
        first = next((query for query in view.queue if query.id not in dropped), None)
        if first is None:
            return decision
        until = first.arrived + WAIT_SHARE * (first.deadline - first.arrived)
        if view.now < until:
            return msgspec.structs.replace(decision, wait_until=min(decision.wait_until, until))
        # With no time left to wait, what is there runs.
        return self._waiting.decide(msgspec.structs.replace(view, blocking_s=math.inf))

    def observe(self, outcome: Outcome) -> None:
        """Nothing to learn: every decision follows from the queue and the profiles."""


def choose(queue: Sequence[Waiting], candidates: Sequence[Candidate], now: float) -> Candidate:
    """The candidate that the next batch should run on; the first, if it will do. Pure; costs one pass over the queue
    for each candidate looked at."""
    matters = _can_be_in_time(queue, candidates, now)
    if not matters or clears(matters, candidates[0], now):
        return candidates[0]
    others = sorted(candidates[1:], key=lambda candidate: (-candidate.accuracy, candidate.variant))
    for candidate in others:
        if clears(matters, candidate, now):
            return candidate
    return max(candidates, key=lambda candidate: candidate.max_batch / candidate.latency.seconds(candidate.max_batch))


def _can_be_in_time(queue: Sequence[Waiting], candidates: Sequence[Candidate], now: float) -> list[Waiting]:
    """The queries, up to the look ahead, that at least one candidate could answer in time if it ran them now."""
    matters, rows = [], 0
    for query in queue:
        if rows >= LOOK_AHEAD_ROWS:
            break
        if any(now + candidate.latency.seconds(query.rows) <= query.deadline for candidate in candidates):
            matters.append(query)
            rows += query.rows
    return matters


def clears(queue: Sequence[Waiting], candidate: Candidate, now: float) -> bool:
    """Whether full batches of ``candidate``, one after the other in deadline order, answer every query in time."""
    seconds, limit = candidate.latency.seconds, candidate.max_batch
    ends, rows, earliest = now, 0, None
    for query in queue:
        if earliest is not None and rows + query.rows > limit:
            ends += seconds(rows)
            if ends > earliest:
                return False
            rows, earliest = 0, None
        rows += query.rows
        # Deadlines rise along the queue: the first of a batch is its earliest.
        earliest = query.deadline if earliest is None else earliest
    return earliest is None or ends + seconds(rows) <= earliest
