"""Nexus' early drop: some are dropped so that others get full batches (SOSP 2019, Section 6.3)."""

from __future__ import annotations

from collections import deque

from .forming import Classified, classify, start, wait
from .policy import BatchPolicy, Decision, QueueView, Waiting


class NexusPolicy(BatchPolicy):
    """Runs the first window of the queue that is punctual, of the target batch size.

    The window starts at the first query of the queue, in deadline order, and holds as many as the target batch takes,
    or all that wait if they are fewer. If its first query has time for the whole window, that batch runs; otherwise
    this query is dropped and the window moves on by one. So a backlog costs its oldest queries, not the batch size.
    Work-conserving: whenever the device is free and a viable query waits, something runs (a window of one viable
    query always fits).

    Chosen where the paper leaves it open: the target is the plan's batch size; queries that could not be in time even
    alone never enter a window; a query larger than the target is a window of its own. Where late ones are served, the
    queries passed over are not dropped: they are tried again as long as they are viable, and run late when nothing
    viable waits.
    """

    def decide(self, view: QueueView) -> Decision:
        candidate = view.candidates[0]
        classified = classify(view, candidate.max_batch)
        if not classified.viable:
            return wait(view, classified)
        if view.now + candidate.latency.seconds(classified.rows) > classified.viable[0].deadline:
            classified = self._slide(view, classified)
        return start(view, classified, len(classified.viable), classified.rows, candidate.max_batch)

    def _slide(self, view: QueueView, classified: Classified) -> Classified:
        candidate = view.candidates[0]
        now, queue, seconds, target = view.now, view.queue, candidate.latency.seconds, candidate.max_batch
        window, rows, end, more = deque(classified.viable), classified.rows, classified.end, classified.more
        late = list(classified.late)
        found_late = {query.id for query in late}
        passed: list[Waiting] = []
        while now + seconds(rows) > window[0].deadline:
            passed.append(window.popleft())
            rows -= passed[-1].rows
            more = False
            while end < len(queue):
                query = queue[end]
                if query.deadline < now + seconds(query.rows):
                    if query.id not in found_late:
                        late.append(query)
                elif window and rows + query.rows > target:
                    more = True
                    break
                else:
                    window.append(query)
                    rows += query.rows
                end += 1
        if view.serve_late:
            # Those passed over are left behind viable, so no late ones may fill the batch in front of them.
            return Classified(list(window), rows, end, True, late)
        return Classified(list(window), rows, end, more, late + passed)
