"""Runs batch policies on one device under a virtual clock.

It is a small deterministic event loop with a timeline. Every decision on the way is checked against what the interface
promises, so a timeline that comes back is one of a policy that kept its contract.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from workers.dispatch.published.policy import BatchPolicy, Candidate, Decision, QueueView


@dataclass(frozen=True)
class Query:
    id: int
    arrived: float
    deadline: float
    rows: int = 1
    queue: str = "app"


@dataclass
class Served:
    """One queue on the device."""

    policy: BatchPolicy
    candidate: Candidate
    late: str = "shed"
    name: str = "app"
    queue: list[Query] = field(default_factory=list)
    ran_at: float = -math.inf


@dataclass(frozen=True)
class Batch:
    queue: str
    start: float
    end: float
    ids: tuple[int, ...]


@dataclass
class Timeline:
    batches: list[Batch] = field(default_factory=list)
    dropped: list[tuple[float, int]] = field(default_factory=list)
    decisions: list[tuple[float, str, Decided]] = field(default_factory=list)

    @property
    def answered(self) -> list[int]:
        """The ids of all answers, results and drops, as often as they were given."""
        return [i for batch in self.batches for i in batch.ids] + [i for _, i in self.dropped]

    @property
    def ends(self) -> dict[int, float]:
        return {i: batch.end for batch in self.batches for i in batch.ids}


@dataclass(frozen=True)
class Decided:
    run: tuple[int, ...]
    variant: object
    drop: tuple[int, ...]
    wait_until: float

    @classmethod
    def of(cls, decision: Decision) -> Decided:
        variant = None if decision.candidate is None else decision.candidate.variant
        run, drop = (tuple(query.id for query in some) for some in (decision.run, decision.drop))
        return cls(run, variant, drop, decision.wait_until)


def by_deadline(query: Query) -> tuple[float, int]:
    return query.deadline, query.id


def check_contract(view: QueueView, decision: Decided) -> None:
    """Rules that every decision keeps, whatever the policy."""
    waiting = {query.id: query for query in view.queue}
    run, drop = set(decision.run), set(decision.drop)
    assert len(run) == len(decision.run) and len(drop) == len(decision.drop), "an id stands twice"
    assert run <= waiting.keys() and drop <= waiting.keys() and not run & drop
    if view.serve_late:
        assert not drop, "serve drops nothing"
    if run:
        candidate = view.candidates[0]
        assert decision.variant == candidate.variant
        rows = sum(waiting[i].rows for i in run)
        assert rows <= candidate.max_batch or len(run) == 1, "only a query larger than max_batch exceeds it, alone"
    elif len(drop) < len(waiting):
        assert view.now < decision.wait_until < math.inf, "what waits must be looked at again"
    else:
        assert decision.wait_until == math.inf


def simulate(
    queues: Sequence[Served],
    arrivals: Sequence[Query],
    on_decision: Callable[[QueueView, Decided], None] = lambda view, decision: None,
) -> Timeline:
    """Serve ``arrivals`` until nothing waits any more; queues take turns."""
    timeline = Timeline()
    by_name = {served.name: served for served in queues}
    coming = sorted(arrivals, key=lambda query: (query.arrived, query.id))[::-1]
    running: tuple[Batch, int, int] | None = None
    ask_at = math.inf
    for _ in range(100 * (len(arrivals) + 1)):
        moments = [ask_at if running is None else running[0].end]
        if coming:
            moments.append(coming[-1].arrived)
        now = min(moments)
        if now == math.inf:
            assert not any(served.queue for served in queues), "the device sleeps while queries wait"
            return timeline
        if running is not None and running[0].end == now:
            batch, rows, late = running
            by_name[batch.queue].policy.observe(rows, late)
            running = None
        while coming and coming[-1].arrived == now:
            query = coming.pop()
            insort(by_name[query.queue].queue, query, key=by_deadline)
        if running is not None:
            continue
        decisions = []
        for served in queues:
            if not served.queue:
                continue
            before = list(served.queue)
            view = QueueView(now, list(served.queue), [served.candidate], served.late == "serve")
            decision = served.policy.decide(view)
            assert view.queue == before, "a policy must not change the view"
            decided = Decided.of(decision)
            check_contract(view, decided)
            on_decision(view, decided)
            timeline.decisions.append((now, served.name, decided))
            decisions.append((served, decision))
            timeline.dropped += [(now, i) for i in decided.drop]
            served.queue[:] = [query for query in served.queue if query.id not in decided.drop]
        ask_at = min((decision.wait_until for _, decision in decisions), default=math.inf)
        ready = [(served, decision) for served, decision in decisions if decision.run]
        if ready:
            running = _start(*min(ready, key=lambda one: one[0].ran_at), now)
            timeline.batches.append(running[0])
    raise AssertionError("the policy asks again and again without getting anywhere")


def _start(served: Served, decision: Decision, now: float) -> tuple[Batch, int, int]:
    batch, served.ran_at = decision.run, now
    served.queue[:] = [query for query in served.queue if query not in batch]
    rows = sum(query.rows for query in batch)
    end = now + served.candidate.latency.seconds(rows)
    late = sum(query.deadline < end for query in batch)
    return Batch(served.name, now, end, tuple(query.id for query in batch)), rows, late
