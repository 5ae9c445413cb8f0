"""Nexus' early drop (Nexus, SOSP 2019, Section 6.3): give some queries up early, so that others get full batches."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from .base import Decision, LaneView, Outcome, Waiting
from .forming import IDLE, SHED, Sifted, nothing_viable, sift, start


class NexusPolicy:
    """Slides a window of the target batch size over the queue and runs the first window that is punctual.

    The window starts at the first query of the queue, in deadline order, and holds as many as the target batch takes,
    or all that wait if they are fewer. If its first query has time for the whole window, that batch runs; otherwise
    this query is dropped and the window moves on by one. So a backlog costs its oldest queries, not the batch size.
    Work-conserving: whenever the device is free and a viable query waits, something runs (a window of one viable
    query always fits).

    Chosen where the paper leaves it open: the target is the plan's batch size; queries that
    could not be in time even alone never enter a window; a query larger than the target is a window of its own. With
    ``serve`` the queries passed over are not dropped: they are tried again as long as they are viable, and run late
    when nothing viable waits.
    """

    def decide(self, view: LaneView) -> Decision:
        if not view.queue:
            return IDLE
        candidate = view.candidates[0]
        target = candidate.max_batch
        found = sift(view, target)
        if not found.viable:
            return nothing_viable(view, found)
        seconds = candidate.latency.seconds
        if view.now + seconds(found.rows) <= found.viable[0].deadline:
            return start(view, found, len(found.viable), found.rows, target)
        return self._slide(view, found, target)

    def observe(self, outcome: Outcome) -> None:
        """Nothing to learn: the target comes from the plan."""

    def _slide(self, view: LaneView, found: Sifted, target: int) -> Decision:
        """Move the window on until its batch is punctual. Costs one step a query passed over, plus one batch."""
        now, queue, seconds = view.now, view.queue, view.candidates[0].latency.seconds
        window, rows = deque(found.viable), found.rows
        hopeless = {query.id for query in found.hopeless}
        passed: list[Waiting] = []
        ahead = _position(queue, window[-1]) + 1
        more = found.more
        while now + seconds(rows) > window[0].deadline:
            gone = window.popleft()
            passed.append(gone)
            rows -= gone.rows
            more = False
            while ahead < len(queue):
                query = queue[ahead]
                if query.deadline < now + seconds(query.rows):
                    if query.id not in hopeless:
                        found.hopeless.append(query)
                elif window and rows + query.rows > target:
                    more = True
                    break
                else:
                    window.append(query)
                    rows += query.rows
                ahead += 1
        if view.late == SHED:
            return start(view, Sifted(list(window), rows, more, found.hopeless + passed), len(window), rows, target)
        # Those passed over are left behind viable, so no late ones may fill the batch in front of them.
        return start(view, Sifted(list(window), rows, True, found.hopeless), len(window), rows, target)


def _position(queue: Sequence[Waiting], query: Waiting) -> int:
    """Where ``query`` stands in ``queue``, which is in deadline order."""
    i = bisect_left(queue, query.deadline, key=attrgetter("deadline"))
    while queue[i].id != query.id:
        i += 1
    return i
