"""What batch policies share: telling queries that can be in time from those that cannot, and cutting batches.

A query is *viable* while it would be in time if it were started now, alone (``now + T_process(rows) <= deadline``),
*hopeless* if it would be late even in the typical time, and *doubtful* in between: it is not given up, yet it must not
cost a viable one its time, so it runs when nothing viable needs the device. Every function costs about what it takes:
the rows of one batch and the queries that become late within one batch time, never the whole queue.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from ...latency import LatencyModel
from .base import Decision, LaneView, Waiting

SHED = "shed"
IDLE = Decision()
"""Nothing waits."""

_deadline = attrgetter("deadline")


class Sifted(NamedTuple):
    """``viable``: the first viable queries, ``rows`` together; ``more``: a viable one did not fit behind them.
    ``hopeless``: with ``shed`` those to drop, with ``serve`` the first of them, doubtful ones among them.
    ``doubtful``: with ``shed``, the first of those."""

    viable: list[Waiting]
    rows: int
    more: bool
    hopeless: list[Waiting]
    doubtful: Waiting | None = None


def sift(view: LaneView, limit: int) -> Sifted:
    """The first viable queries with at most ``limit`` rows (the first may have more), and the hopeless ones.

    With ``shed``, hopeless ones are looked for among all queries due within the time of a full batch, which is every
    hopeless query of up to ``max_batch`` rows. A larger one behind those is found hopeless later, but before it runs.
    """
    candidate = view.candidates[0]
    seconds = candidate.latency.seconds
    typical = candidate.typical.seconds if candidate.typical is not None else seconds
    queue, now, shed = view.queue, view.now, view.late == SHED
    doubtful: Waiting | None = None
    viable: list[Waiting] = []
    hopeless: list[Waiting] = []
    rows, more, first = 0, False, 0
    if shed:
        horizon = now + candidate.latency.ceiling(candidate.max_batch)
    else:
        # A backlog of late ones may be long: a batch of them is enough, the others are skipped by bisection.
        horizon = -math.inf
        first = bisect_left(queue, now + candidate.latency.least, key=_deadline)
        late_rows = 0
        for i in range(first):
            if late_rows >= candidate.max_batch:
                break
            hopeless.append(queue[i])
            late_rows += queue[i].rows
    size, due = 0, now
    for i in range(first, len(queue)):
        query = queue[i]
        deadline = query.deadline
        # Most queries have as many rows as the one before: what is due too early for them is looked up once.
        if query.rows != size:
            size = query.rows
            due = now + seconds(size)
        if deadline < due:
            if not shed or query.deadline < now + typical(query.rows):
                hopeless.append(query)
            elif doubtful is None:
                doubtful = query
        elif more or (viable and rows + size > limit):
            more = True
            if deadline >= horizon:
                break
        else:
            viable.append(query)
            rows += size
    return Sifted(viable, rows, more, hopeless, doubtful)


def punctual_prefix(found: Sifted, now: float, latency: LatencyModel) -> tuple[int, int]:
    """(queries, rows) of the largest prefix of the viable whose batch, started now, ends by its first query's
    deadline; at least 1. Queries stand in deadline order, so nobody in such a batch is late.
    """
    seconds = latency.seconds
    viable, rows = found.viable, found.rows
    deadline = viable[0].deadline
    count = len(viable)
    # From the largest down: the first that fits is meant, also where measured latencies do not rise with the batch.
    while count > 1 and now + seconds(rows) > deadline:
        count -= 1
        rows -= viable[count].rows
    return count, rows


def last_call(deadline: float, rows: int, latency: LatencyModel) -> float:
    """T_max_wait(q+1) = T_exp(1) - T_process(q+1) of Proteus, Section 5, with q = ``rows``: how long a batch may wait
    for one row more. Also early enough for the q rows at hand where these were measured slower than q+1."""
    seconds = max(latency.seconds(rows + 1), latency.seconds(rows))
    start = deadline - seconds
    # The difference is rounded: a start at that very moment must not end one ulp after the deadline.
    while start + seconds > deadline:
        start = math.nextafter(start, -math.inf)
    return start


def hold(view: LaneView, found: Sifted, until: float) -> Decision:
    """Wait until ``until``; what is doubtful, and with ``serve`` what is late, runs meanwhile if it ends by then."""
    candidate = view.candidates[0]
    if view.late == SHED:
        doubtful = found.doubtful
        if doubtful is not None and view.now + candidate.latency.seconds(doubtful.rows) <= until:
            return Decision(run=(doubtful.id,), variant=candidate.variant, drop=ids(found.hopeless))
        return Decision(drop=ids(found.hopeless), wait_until=until)
    late = _late_batch(view, found, until)
    if late:
        return Decision(run=late, variant=candidate.variant)
    return Decision(wait_until=until)


def nothing_viable(view: LaneView, found: Sifted) -> Decision:
    """Nothing that waits is sure to be in time: shed it or, where it may be, try it; ``serve`` a batch at once."""
    if view.late == SHED:
        if found.doubtful is not None:
            run = (found.doubtful.id,)
            return Decision(run=run, variant=view.candidates[0].variant, drop=ids(found.hopeless))
        return Decision(drop=ids(found.hopeless))
    return Decision(run=_late_batch(view, found, math.inf), variant=view.candidates[0].variant)


def start(view: LaneView, found: Sifted, count: int, rows: int, limit: int) -> Decision:
    """Run the first ``count`` viable queries, ``rows`` together. With ``serve`` and nobody viable left behind, late
    ones fill the batch up to ``limit`` rows, as far as it still ends by the first query's deadline."""
    candidate = view.candidates[0]
    batch = found.viable[:count]
    if view.late == SHED:
        return Decision(run=ids(batch), variant=candidate.variant, drop=ids(found.hopeless))
    if count == len(found.viable) and not found.more:
        for query in found.hopeless:
            rows += query.rows
            if rows > limit or view.now + candidate.latency.seconds(rows) > batch[0].deadline:
                break
            batch.append(query)
    return Decision(run=ids(batch), variant=candidate.variant)


def ids(queries: Sequence[Waiting]) -> tuple[int, ...]:
    return tuple([query.id for query in queries])


def _late_batch(view: LaneView, found: Sifted, until: float) -> tuple[int, ...]:
    """The largest prefix of the hopeless that is one batch and, started now, ends by ``until``; perhaps none."""
    candidate = view.candidates[0]
    count, rows = 0, 0
    for i, query in enumerate(found.hopeless, 1):
        rows += query.rows
        if i > 1 and rows > candidate.max_batch:
            break
        if view.now + candidate.latency.seconds(rows) <= until:
            count = i
    return ids(found.hopeless[:count])
