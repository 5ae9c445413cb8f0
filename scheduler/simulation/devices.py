"""A simulated device: what is loaded there, its lanes, and whose turn it is. No clock of its own.

It arranges for the batch policies and the arbiter what the live executor arranges for them; these decide.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Mapping, Sequence

from scheduler.allocation.problem import Placement
from workers.batching.base import BatchPolicy, Candidate, LaneView, Outcome
from workers.batching.latency import LatencyModel
from workers.batching.relief import behind, relief_rows
from workers.batching.turns import Arbiter, Lane, Wish, blocking_s
from workers.dispatch.binding import QueryClass


class Query:
    """``deadline``: when the device must be done with it, in seconds; ``application`` is an index."""

    __slots__ = ("application", "arrived", "booking", "deadline", "id", "query_class", "rows")
    #: traces know no shapes
    key = None

    def __init__(
        self, id: int, application: int, arrived: float, deadline: float, query_class: QueryClass | None = None
    ):
        self.id = id
        self.query_class = query_class
        self.application = application
        self.arrived = arrived
        self.deadline = deadline
        self.rows = 1
        #: the dispatcher's
        self.booking = None


def _order(query: Query) -> tuple[float, int]:
    return query.deadline, query.id


class Variant:
    """A variant as one device type runs it. ``index`` names it in candidates; ``latency``: what it was profiled at."""

    __slots__ = ("accuracy", "application", "id", "index", "latency")

    def __init__(self, index: int, id: str, application: str, accuracy: float, latency: LatencyModel):
        self.index = index
        self.id = id
        self.application = application
        self.accuracy = accuracy
        self.latency = latency


class SimulatedLane:
    """An application's queue on a device. ``planned`` and ``rates``: its planned candidates, and items/s for each.
    ``candidates``: these and the faster ones that a policy may choose instead."""

    __slots__ = (
        "application",
        "blocking_s",
        "candidates",
        "name",
        "planned",
        "policy",
        "queue",
        "rates",
        "relief",
        "rows_served",
    )

    def __init__(self, name: str, application: int, policy: BatchPolicy):
        self.name = name
        self.application = application
        self.policy = policy
        self.queue: list[Query] = []
        self.blocking_s = 0.0
        self.planned: list[Candidate] = []
        self.rates: dict[int, float] = {}
        self.candidates: list[Candidate] = []
        self.rows_served: dict[int, float] = {}

    def serve(self, planned: list[Candidate], rates: dict[int, float], relief: list[Candidate]) -> None:
        """Take over what the plan says."""
        self.planned, self.rates = planned, rates
        self.candidates = planned + relief
        self.rows_served = dict.fromkeys(rates, 0.0)

    def add(self, query: Query) -> None:
        queue = self.queue
        if not queue or (queue[-1].deadline <= query.deadline and queue[-1].id < query.id):
            queue.append(query)
        else:
            insort(queue, query, key=_order)

    def take(self, ids: Sequence[int]) -> list[Query]:
        """Take these queries out of the queue."""
        queue, count = self.queue, len(ids)
        head = queue[:count]
        if [query.id for query in head] == list(ids):
            del queue[:count]
            return head
        wanted = set(ids)
        taken = [query for query in queue if query.id in wanted]
        self.queue = [query for query in queue if query.id not in wanted]
        return taken

    def in_turn(self) -> list[Candidate]:
        """Of several planned variants of one application the one with the least rows served for its rate is first."""
        if len(self.planned) < 2:
            return self.candidates
        first = min(self.planned, key=lambda c: behind(self.rows_served[c.variant], self.rates[c.variant]))
        return [first, *(c for c in self.candidates if c is not first)]


class Batch:
    """Queries that run together."""

    __slots__ = ("lane", "queries", "started", "variant")

    def __init__(self, lane: SimulatedLane, variant: int, queries: list[Query], started: float):
        self.lane = lane
        self.variant = variant
        self.queries = queries
        self.started = started


class SimulatedDevice:
    """One device.

    ``variants``: what can run on its type, by id. ``max_resident`` None: not limited. A variant that was loaded stays
    until its place is needed; the one planned longest ago goes first. ``running``: the batch under way. ``loads``:
    variants still to be loaded before it serves again; ``loading``: the one under way. ``wake_at``: when it asked to be
    asked again.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        variants: Mapping[str, Variant],
        max_resident: int | None,
        create_policy: Callable[[], BatchPolicy],
    ):
        self.name = name
        self.kind = kind
        self.max_resident = max_resident
        self.lanes: dict[str, SimulatedLane] = {}
        self.loaded: dict[str, None] = {}
        self.loads: list[str] = []
        self.planned: frozenset[str] = frozenset()
        self.loading: str | None = None
        self.running: Batch | None = None
        self.wake_at = -1.0
        self._variants = variants
        self._by_index = {variant.index: variant for variant in variants.values()}
        self._create_policy = create_policy
        self._arbiter = Arbiter()
        self._only: SimulatedLane | None = None

    @property
    def ready(self) -> bool:
        """Nothing is being loaded or about to be."""
        return self.loading is None and not self.loads

    @property
    def idle(self) -> bool:
        """A batch may start."""
        return self.running is None and self.loading is None and not self.loads

    def warm(self) -> list[str]:
        """What is loaded, or will be when the load under way ends."""
        return [*self.loaded, *([] if self.loading is None else [self.loading])]

    def plan(
        self, placements: Sequence[Placement], application_index: Mapping[str, int], stand_by: Sequence[str] = ()
    ) -> list[Query]:
        """Take over a plan: what to load is then in ``loads``. Returns the queries that it no longer serves, taken
        out. ``stand_by``: faster variants to keep warm where there is room."""
        wanted = [placement.variant for placement in placements]
        for variant in (*stand_by, *wanted):
            if variant in self.loaded:
                # Last in the order of eviction.
                del self.loaded[variant]
                self.loaded[variant] = None
        missing = [v for v in wanted if v not in self.loaded and v != self.loading]
        coming = len(missing) + (self.loading in wanted)
        room = self.max_resident
        if room is not None:
            for variant in list(self.loaded):
                if len(self.loaded) + coming > room and variant not in wanted:
                    del self.loaded[variant]
        spare = [v for v in stand_by if v not in self.loaded and v != self.loading]
        if room is not None:
            spare = spare[: max(0, room - len(self.loaded) - coming)]
        self.planned = frozenset(wanted)
        self.loads = missing + spare
        return self._arrange(placements, application_index)

    def _arrange(self, placements: Sequence[Placement], application_index: Mapping[str, int]) -> list[Query]:
        by_application: dict[str, list[Placement]] = {}
        for placement in placements:
            by_application.setdefault(self._variants[placement.variant].application, []).append(placement)
        stranded = []
        for name in [name for name in self.lanes if name not in by_application]:
            stranded += self.lanes.pop(name).queue
            self._arbiter.forget(name)
        for name, mine in by_application.items():
            lane = self.lanes.get(name)
            if lane is None:
                lane = self.lanes[name] = SimulatedLane(name, application_index[name], self._create_policy())
            planned, rates = [], {}
            for placement in mine:
                variant = self._variants[placement.variant]
                planned.append(Candidate(variant.index, variant.accuracy, variant.latency, placement.max_batch))
                rates[variant.index] = placement.rate
            lane.serve(planned, rates, self._relief(name, planned))
        # Lanes with an empty queue count too: what arrives there meanwhile may take the device first.
        gaps = blocking_s([Lane.of(name, lane.planned) for name, lane in self.lanes.items()], slack_s=0.0)
        for name, lane in self.lanes.items():
            lane.blocking_s = gaps[name]
        self._only = next(iter(self.lanes.values())) if len(self.lanes) == 1 else None
        return stranded

    def _relief(self, application: str, planned: list[Candidate]) -> list[Candidate]:
        """Warm variants with a higher throughput than every planned one, in turns no longer than theirs, as the live
        executor offers them."""
        turns = [(c.latency, c.max_batch) for c in planned]
        found = []
        for id in (*self.warm(), *self.loads):
            variant = self._variants[id]
            if variant.application != application or any(c.variant == variant.index for c in planned):
                continue
            rows = relief_rows(turns, variant.latency)
            if rows:
                found.append(Candidate(variant.index, variant.accuracy, variant.latency, rows, planned=False))
        return sorted(found, key=lambda c: (-c.accuracy, c.variant))

    def load_next(self) -> bool:
        """Begin the next load; False when there is none. :meth:`load_ended` must follow."""
        self.loading = self.loads.pop(0) if self.loads else None
        return self.loading is not None

    def load_ended(self) -> None:
        """What was being loaded is there. Where a newer plan has no place for it, it goes at once."""
        variant, self.loading = self.loading, None
        due = len(self.planned - self.loaded.keys() - {variant})
        limit = self.max_resident
        if variant in self.planned or limit is None or len(self.loaded) + due < limit:
            self.loaded[variant] = None

    def decide(self, now: float, drop: Callable[[Query], None]) -> float:
        """Start a batch (then in ``running``) if it is time; call it on an idle, ready device only. Returns when to
        ask again if nothing happens before (inf: only then). ``drop`` gets each query that is refused."""
        lane = self._only
        if lane is not None:
            # One lane has no rival: the arbiter would give it every turn that it wants.
            if not lane.queue:
                return math.inf
            candidates = lane.candidates if len(lane.planned) == 1 else lane.in_turn()
            decision = lane.policy.decide(LaneView(now, lane.queue, candidates, "shed", lane.blocking_s))
            if decision.drop:
                for query in lane.take(decision.drop):
                    drop(query)
            if decision.run:
                self.running = Batch(lane, decision.variant, lane.take(decision.run), now)
                return math.inf
            return decision.wait_until
        wishes = []
        for lane in self.lanes.values():
            if not lane.queue:
                continue
            candidates = lane.in_turn()
            decision = lane.policy.decide(LaneView(now, lane.queue, candidates, "shed", lane.blocking_s))
            latencies = {c.variant: c.latency for c in candidates}
            wishes.append(Wish.of(lane.name, decision, lane.queue, latencies, now))
            if decision.drop:
                for query in lane.take(decision.drop):
                    drop(query)
        if not wishes:
            return math.inf
        turn = self._arbiter.choose(wishes, now)
        if turn.lane is None:
            return turn.ask_at
        lane = self.lanes[turn.lane]
        decision = next(wish.decision for wish in wishes if wish.lane == turn.lane)
        self.running = Batch(lane, decision.variant, lane.take(decision.run), now)
        return math.inf

    def profiled_s(self, variant: int, rows: int) -> float:
        """Seconds that a batch takes by its profile."""
        return self._by_index[variant].latency.seconds(rows)

    def ended(self, now: float) -> tuple[Batch, Variant]:
        """The batch under way has ended."""
        batch, self.running = self.running, None
        lane, queries = batch.lane, batch.queries
        rows = len(queries)
        # Queries stand in a batch as they stood in the queue, by deadline: if the first is in time, all are.
        late = sum(query.deadline < now for query in queries) if queries[0].deadline < now else 0
        lane.policy.observe(Outcome(batch.variant, rows, now - batch.started, rows, late))
        if batch.variant in lane.rows_served:
            lane.rows_served[batch.variant] += rows
        self._arbiter.ended(lane.name, now)
        return batch, self._by_index[batch.variant]
