"""A batch policy to compare late binding with.

It has Proteus' waiting, and relief by a faster resident variant. A plan is made for seconds; queues build up within
milliseconds. Between a burst's first query and the next plan this policy lowers accuracy by itself, batch by batch, and
only for as long as it must.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from workers.dispatch.published.batching.forming import classify, punctual_prefix, start
from workers.dispatch.published.batching.policy import BatchPolicy, Candidate, Decision, QueueView, Waiting
from workers.dispatch.published.batching.proteus import ProteusPolicy

#: part of its time that a query may spend waiting on purpose. The rest is ample for the batch that a plan counts on (at
#: most half of the SLO), so that a device that stalls for a moment makes no query late
WAIT_SHARE = 0.5
#: rows of the queue that the look ahead goes through; a backlog beyond is a backlog whatever comes after
LOOK_AHEAD_ROWS = 256


class NereusPolicy(BatchPolicy):
    """A policy that runs the first candidate while that clears the queue in time.

    It batches as ``proteus`` does. Else it runs, batch by batch, the most accurate candidate that clears the queue, and
    if none does the one with the highest throughput. Every query counts that at least one candidate could still answer
    in time. A relief batch runs at once: a backlog is no time for a batching delay. And a batching delay ends when half
    of the first query's time is gone, where ``proteus`` goes to the edge.
    """

    def __init__(self) -> None:
        self._proteus = ProteusPolicy()

    def decide(self, view: QueueView) -> Decision:
        if len(view.candidates) == 1:
            return self._wait_or_run(view)
        chosen = choose(view.queue, with_relief(tuple(view.candidates)), view.now)
        if chosen == view.candidates[0]:
            return self._wait_or_run(view)
        view = msgspec.structs.replace(view, candidates=[chosen])
        found = classify(view, chosen.max_batch)
        if not found.viable:
            return self._proteus.decide(view)
        count, rows = punctual_prefix(found, view.now, chosen.latency)
        return start(view, found, count, rows, chosen.max_batch)

    def _wait_or_run(self, view: QueueView) -> Decision:
        decision = self._proteus.decide(view)
        if decision.run or decision.wait_until == math.inf:
            return decision
        dropped = {query.id for query in decision.drop}
        first = next((query for query in view.queue if query.id not in dropped), None)
        if first is None:
            return decision
        until = first.arrived + WAIT_SHARE * (first.deadline - first.arrived)
        if view.now < until:
            return msgspec.structs.replace(decision, wait_until=min(decision.wait_until, until))
        # With no time left to wait, run what there is.
        return self._proteus.decide(msgspec.structs.replace(view, blocking_s=math.inf))


@lru_cache(maxsize=4096)
def with_relief(candidates: tuple[Candidate, ...]) -> list[Candidate]:
    """Return the planned candidates, and others that relieve them.

    The others have a higher throughput than every planned one in batches no longer than theirs. They come with fewer
    rows, so that this holds, the most accurate first. All candidates are returned where none is planned.
    """
    planned = [candidate for candidate in candidates if candidate.planned]
    if not planned:
        return list(candidates)
    longest_s = max(candidate.latency.ceiling(candidate.max_batch) for candidate in planned)
    rate = max(_throughput(candidate) for candidate in planned)
    relief = []
    for other in candidates[len(planned) :]:
        rows = other.latency.largest
        while rows and other.latency.ceiling(rows) > longest_s:
            rows -= 1
        if rows and rows / other.latency.seconds(rows) > rate:
            relief.append(msgspec.structs.replace(other, max_batch=min(rows, other.max_batch)))
    return planned + sorted(relief, key=lambda candidate: (-candidate.accuracy, candidate.variant))


def choose(queue: Sequence[Waiting], candidates: Sequence[Candidate], now: float) -> Candidate:
    """Return the candidate that the next batch should run on.

    It is the first, if that will do. Pure; costs one pass over the queue for each candidate looked at.
    """
    matters = _can_be_in_time(queue, candidates, now)
    if not matters or clears(matters, candidates[0], now):
        return candidates[0]
    others = sorted(candidates[1:], key=lambda candidate: (-candidate.accuracy, candidate.variant))
    for candidate in others:
        if clears(matters, candidate, now):
            return candidate
    return max(candidates, key=_throughput)


def _throughput(candidate: Candidate) -> float:
    return candidate.max_batch / candidate.latency.seconds(candidate.max_batch)


def _can_be_in_time(queue: Sequence[Waiting], candidates: Sequence[Candidate], now: float) -> list[Waiting]:
    """Return the queries, up to the look ahead, that could be answered in time.

    At least one candidate could if it ran them now.
    """
    matters, rows = [], 0
    for query in queue:
        if rows >= LOOK_AHEAD_ROWS:
            break
        if any(now + candidate.latency.seconds(query.rows) <= query.deadline for candidate in candidates):
            matters.append(query)
            rows += query.rows
    return matters


def clears(queue: Sequence[Waiting], candidate: Candidate, now: float) -> bool:
    """Whether ``candidate`` answers every query in time, in full batches.

    They run one after the other, in deadline order.
    """
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
