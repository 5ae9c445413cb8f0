"""Helpers of batch policies: classify queries, form batches.

A query is *viable* if it would be in time when started now, alone (``now + seconds(rows) <= deadline``), *hopeless* if
it would be late even in the typical time, and *doubtful* in between: it is not dropped, yet must not cost a viable one
its time, so it runs when nothing viable needs the device. The cost of each function grows with the rows of one batch
and the queries that become late within one batch time, not with the queue.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from ..latency import LatencyModel
from .policy import Decision, QueueView, Waiting

_deadline = attrgetter("deadline")


class Classified(NamedTuple):
    """Queries by whether they can be in time.

    Attributes:
        viable: the first viable ones; ``rows``: theirs.
        end: the place in the queue behind the last of these.
        more: a viable one did not fit behind them.
        late: those to drop; where late ones are served, the first of them, doubtful ones included.
        doubtful: the first doubtful one; where late ones are served, None.
    """

    viable: list[Waiting]
    rows: int
    end: int
    more: bool
    late: list[Waiting]
    doubtful: Waiting | None = None


def classify(view: QueueView, limit: int) -> Classified:
    """Return the first viable queries and the late ones.

    The viable ones have at most ``limit`` rows together; the first may have more alone.

    Late ones to drop are looked for among all queries due within the time of a full batch, which is every hopeless
    query of up to ``max_batch`` rows. A larger one behind those is found later, but before it runs.
    """
    candidate = view.candidates[0]
    seconds = candidate.latency.seconds
    typical = candidate.typical.seconds if candidate.typical is not None else seconds
    queue, now, serve_late = view.queue, view.now, view.serve_late
    doubtful: Waiting | None = None
    viable: list[Waiting] = []
    late: list[Waiting] = []
    rows, more, first, end = 0, False, 0, 0
    if serve_late:
        horizon = -math.inf
        # A backlog of late ones may be long: one batch of them is enough, bisection skips the others.
        first = bisect_left(queue, now + candidate.latency.least, key=_deadline)
        late_rows = 0
        for query in queue[: min(first, candidate.max_batch)]:
            if late_rows >= candidate.max_batch:
                break
            late.append(query)
            late_rows += query.rows
    else:
        horizon = now + candidate.latency.ceiling(candidate.max_batch)
    size, due = 0, now
    for i in range(first, len(queue)):
        query = queue[i]
        deadline = query.deadline
        # Most queries have as many rows as the one before: what is due too early for them is looked up once.
        if query.rows != size:
            size = query.rows
            due = now + seconds(size)
        if deadline < due:
            if serve_late or deadline < now + typical(size):
                late.append(query)
            elif doubtful is None:
                doubtful = query
        elif more or (viable and rows + size > limit):
            more = True
            if deadline >= horizon:
                break
        else:
            viable.append(query)
            rows += size
            end = i + 1
    return Classified(viable, rows, end, more, late, doubtful)


def punctual_prefix(classified: Classified, now: float, latency: LatencyModel) -> tuple[int, int]:
    """(queries, rows) of the largest prefix that ends by the first query's deadline.

    Queries are in deadline order, so no query of such a batch is late.
    """
    seconds = latency.seconds
    viable, rows = classified.viable, classified.rows
    deadline = viable[0].deadline
    count = len(viable)
    # From the largest down: measured latencies need not rise with the batch.
    while count > 1 and now + seconds(rows) > deadline:
        count -= 1
        rows -= viable[count].rows
    return count, rows


def wait(view: QueueView, classified: Classified, until: float = math.inf) -> Decision:
    candidate = view.candidates[0]
    if view.serve_late:
        late = _late_batch(view, classified, until)
        return Decision(late, candidate) if late else Decision(wait_until=until)
    doubtful = classified.doubtful
    if doubtful is not None and view.now + candidate.latency.seconds(doubtful.rows) <= until:
        return Decision([doubtful], candidate, classified.late)
    return Decision(drop=classified.late, wait_until=until)


def start(view: QueueView, classified: Classified, count: int, rows: int, limit: int) -> Decision:
    """Run the first ``count`` viable queries, ``rows`` rows together.

    Where late ones are served and no viable one is left behind, late ones fill the batch up to ``limit`` rows, as far
    as it still ends by the first query's deadline.
    """
    candidate = view.candidates[0]
    batch = classified.viable[:count]
    if not view.serve_late:
        return Decision(batch, candidate, classified.late)
    if count == len(classified.viable) and not classified.more:
        for query in classified.late:
            rows += query.rows
            if rows > limit or view.now + candidate.latency.seconds(rows) > batch[0].deadline:
                break
            batch.append(query)
    return Decision(batch, candidate)


def _late_batch(view: QueueView, classified: Classified, until: float) -> Sequence[Waiting]:
    candidate = view.candidates[0]
    count, rows = 0, 0
    for i, query in enumerate(classified.late, 1):
        rows += query.rows
        if i > 1 and rows > candidate.max_batch:
            break
        if view.now + candidate.latency.seconds(rows) <= until:
            count = i
    return classified.late[:count]
