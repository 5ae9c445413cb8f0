"""The device's queues: one lane per application, one per narrower choice that clients insist on, and the batches that
gateways have put together. Pure.

A lane is a queue by (deadline, id), a batch policy, and the variants that may serve it. Which ones may: the planned
residents of the application; where the plan has none here (any more), whatever of it is still warm, so that queries
under way when a plan changes are still answered. A query that names a variant, or wants more accuracy than the planned
residents have, gets a lane of its own with just the warm variants that will do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from workers.batching import turns
from workers.batching.base import BatchPolicy, Decision, LaneView, Outcome
from workers.batching.relief import relief_rows
from workers.protocol.frames import FrameConnection, Submit
from workers.protocol.specs import ApplicationSpec

from .granted import Granted
from .grants import LANE, Grants
from .lane import Lane
from .loaded import Loaded, Role
from .queries import Query, Ticket


@dataclass(slots=True)
class Batch:
    """Queries of a ``lane``, taken out of it, that run together on one variant; ``limit``: rows that one run may
    take."""

    lane: Lane
    loaded: Loaded
    queries: list[Query]
    limit: int

    @property
    def rows(self) -> int:
        return sum(query.rows for query in self.queries)

    @property
    def extent(self) -> int:
        return max((query.extent for query in self.queries), default=0)


@dataclass(slots=True)
class Step:
    """What the device does next: refuse ``late`` ones, run the ``batch`` of a lane or what was ``granted``, if there is
    either, else ask again at ``wait_until`` (inf: when something arrives)."""

    batch: Batch | None = None
    granted: Granted | None = None
    late: list[Ticket] = field(default_factory=list)
    wait_until: float = math.inf


class Lanes:
    """All lanes of a device.

    Args:
        create_policy: makes a batch policy for an application.
    """

    def __init__(self, create_policy: Callable[[ApplicationSpec], BatchPolicy]):
        self._create_policy = create_policy
        self._lanes: dict[tuple[str, tuple[int, ...] | None], Lane] = {}
        self._default: dict[str, tuple[Loaded, ...]] = {}
        self._warm: dict[str, list[Loaded]] = {}
        self._loaded: dict[int, Loaded] = {}
        self._grants = Grants()
        self._arbiter = turns.Arbiter()
        #: whether the arbiter may remember lanes that waited, see :meth:`forget_waits`
        self.contended = False

    @property
    def rows(self) -> int:
        """Rows that wait on this device."""
        return sum(lane.rows for lane in self._lanes.values()) + self._grants.rows

    def queued(self) -> dict[str, int]:
        """Rows that wait, by application."""
        totals: dict[str, int] = {}
        for lane in self._lanes.values():
            if lane.rows:
                name = lane.application.name
                totals[name] = totals.get(name, 0) + lane.rows
        self._grants.queued(totals)
        return totals

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        if self._grants.waiting:
            return False
        return not self._lanes or not any(lane.queue for lane in self._lanes.values())

    def clear(self) -> list[Ticket]:
        """Every query that waits, taken out."""
        queries = [query for lane in self._lanes.values() for query in lane.queue]
        for query in queries:
            query.lane.remove(query)
        return [query.ticket() for query in queries] + self._grants.clear()

    def needs(self, loaded: Loaded) -> bool:
        """Whether queries wait that this variant may have to serve."""
        return self._grants.needs(loaded.id) or any(
            lane.queue and loaded in lane.variants for lane in self._lanes.values()
        )

    def add(self, query: Query, fresh: bool = True) -> bool:
        """Queue a query; False where no warm variant may serve it. ``fresh``: it was not queued before."""
        application = query.submit.application
        # What is about to be unloaded still serves its queue, but nothing new.
        choice = tuple(loaded for loaded in self._choose(query.submit) if not (fresh and loaded.closing))
        if not choice:
            return False
        # A query that insists stays apart from those that relief may serve, even where the planned variant will do.
        insists = query.submit.variant is not None or query.submit.min_accuracy is not None
        default = choice == self._default[application] and not insists
        narrow = None if default else tuple(loaded.id for loaded in choice)
        lane = self._lanes.get((application, narrow))
        if lane is None:
            spec = choice[0].application
            lane = self._lanes[application, narrow] = Lane(spec, narrow, self._create_policy(spec))
        lane.variants = choice
        if narrow is None:
            lane.relief = self._relief(application)
        lane.add(query)
        return True

    def serving(self, granted: Granted) -> Loaded | None:
        """The variant that a granted batch names; None where it is not warm."""
        # One that is about to be unloaded still runs what is here before it goes, and this is here.
        loaded = self._loaded.get(granted.variant)
        return loaded if loaded is not None and loaded.variant.application == granted.application else None

    def grant(self, granted: Granted) -> None:
        """Queue a batch as it is; its variant is warm (:meth:`serving`)."""
        self._grants.add(granted)

    def forget_waits(self, now: float) -> None:
        """Nothing waits, and a granted batch runs without :meth:`decide`: what the arbiter knows of lanes that waited
        once is of no account any more."""
        self._arbiter.choose((), now)
        self.contended = False

    def granted_ids(self, connection: FrameConnection, ids: Collection[int]) -> set[int]:
        """Which of these queries of a gateway wait in a granted batch."""
        return self._grants.holds(connection, ids)

    def remove(self, query: Query) -> None:
        """Take a waiting query out."""
        if query.lane is not None:
            query.lane.remove(query)

    def cancel_granted(self, connection: FrameConnection, id: int) -> bool:
        """Take a query out of the granted batch that it waits in; False where there is none."""
        return self._grants.cancel(connection, id)

    def forget_granted(self, connection: FrameConnection) -> None:
        """Let all granted batches of a gateway go that is not there any more."""
        self._grants.forget(connection)

    def rearrange(self, warm: Iterable[Loaded]) -> list[Ticket]:
        """Take over which variants are warm and in which role; queries keep their places. Returns the queries that
        nothing warm may serve any more, taken out."""
        self._loaded = {loaded.id: loaded for loaded in warm}
        self._warm = {}
        for loaded in self._loaded.values():
            self._warm.setdefault(loaded.variant.application, []).append(loaded)
        self._default = {name: _default(ready) for name, ready in self._warm.items()}
        for (name, narrow), lane in self._lanes.items():
            ready = self._warm.get(name)
            if ready:
                spec = ready[0].application
                if spec.batching != lane.application.batching:
                    lane.policy = self._create_policy(spec)
                lane.application = spec
            if narrow is None:
                lane.variants = self._default.get(name, ())
                lane.relief = self._relief(name)
        stranded = self._grants.strand(self._loaded)
        for query in [query for lane in self._lanes.values() for query in lane.queue]:
            lane = query.lane
            choice = self._choose(query.submit)
            if choice and lane.narrow is None and choice == lane.variants:
                continue
            lane.remove(query)
            if not choice or not self.add(query, fresh=False):
                stranded.append(query.ticket())
        for key, lane in list(self._lanes.items()):
            if not lane.queue and (lane.narrow is not None or not lane.variants):
                del self._lanes[key]
                self._arbiter.forget(lane.name)
        return stranded

    def _relief(self, application: str) -> tuple[tuple[Loaded, int], ...]:
        """Warm variants with a higher throughput than every default one, in turns no longer than theirs."""
        default = self._default.get(application, ())
        if not default or any(loaded.role is not Role.PLANNED for loaded in default):
            return ()
        planned = [(loaded.estimate.profiled, loaded.max_batch) for loaded in default]
        others = (loaded for loaded in self._warm.get(application, ()) if loaded not in default)
        found = [(loaded, rows) for loaded in others if (rows := relief_rows(planned, loaded.estimate.profiled))]
        return tuple(sorted(found, key=lambda item: (-item[0].accuracy, item[0].id)))

    def _choose(self, submit: Submit) -> tuple[Loaded, ...]:
        default = self._default.get(submit.application, ())
        if submit.variant is not None:
            named = [w for w in self._warm.get(submit.application, ()) if w.variant.name == submit.variant]
            best = tuple(named[:1])
            if submit.min_accuracy is not None and best and best[0].accuracy < submit.min_accuracy:
                return ()
            return default if best == default else best
        if submit.min_accuracy is None:
            return default
        enough = tuple(loaded for loaded in default if loaded.accuracy >= submit.min_accuracy)
        if enough:
            return enough
        others = [w for w in self._warm.get(submit.application, ()) if w.accuracy >= submit.min_accuracy]
        # Least accurate first: it is what was asked for, and likely the fastest.
        return tuple(sorted(others, key=lambda loaded: (loaded.accuracy, loaded.id)))

    def decide(self, now: float, other_s: float = 0.0, guard_s: float = 0.0) -> Step:
        """What to do at ``now``. Late queries and the batch's are taken out of their queues. ``other_s``: how long
        work that is not a lane's may hold the device between two turns; ``guard_s``: see ``estimates.Guard``."""
        waiting = {lane.name: lane for lane in self._lanes.values() if lane.queue}
        step = Step(late=self._grants.late(now, self._loaded))
        granted = self._grants.wish(now, self._loaded)
        if not waiting:
            if granted is not None:
                self._arbiter.choose([granted], now)
                step.granted = self._grants.take()
            return step
        self.contended = True
        candidates = {lane.name: lane.candidates(now) for lane in self._lanes.values() if lane.variants}
        # Lanes with an empty queue count too: what arrives there meanwhile may take the device first.
        # So may a batch that a gateway grants.
        other_s = max(other_s, self._grants.longest_s(now))
        blocking = turns.blocking_s([turns.Lane.of(name, some) for name, some in candidates.items()], other_s)
        wishes = [] if granted is None else [granted]
        for name, lane in waiting.items():
            wish, drop = _wish(lane, blocking[name] + guard_s, now)
            wishes.append(wish)
            step.late += [query.ticket() for query in self._take(lane, drop)]
        turn = self._arbiter.choose(wishes, now)
        step.wait_until = turn.ask_at
        if turn.lane == LANE:
            step.granted = self._grants.take()
        elif turn.lane is not None:
            lane = waiting[turn.lane]
            decision = next(wish.decision for wish in wishes if wish.lane == turn.lane)
            able = (*lane.variants, *(loaded for loaded, _ in lane.relief))
            loaded = next(loaded for loaded in able if loaded.id == decision.variant)
            limit = next((rows for one, rows in lane.relief if one is loaded), loaded.max_batch)
            step.batch = Batch(lane, loaded, self._take(lane, decision.run), limit)
        return step

    @staticmethod
    def _take(lane: Lane, ids: tuple[int, ...]) -> list[Query]:
        if not ids:
            return []
        wanted = set(ids)
        taken = [query for query in lane.queue if query.id in wanted]
        for query in taken:
            lane.remove(query)
        return taken

    def observe(self, batch: Batch, now: float, run_s: float) -> None:
        """Account for a lane's batch that ended at ``now`` after ``run_s`` seconds."""
        batch.loaded.served += batch.rows
        late = sum(query.deadline < now for query in batch.queries)
        batch.lane.policy.observe(Outcome(batch.loaded.id, batch.rows, run_s, len(batch.queries), late))
        self._arbiter.ended(batch.lane.name, now)

    def ended_granted(self, loaded: Loaded, rows: int, expected_s: float, now: float) -> None:
        """Account for a granted batch that ended at ``now`` and was to hold the device for ``expected_s`` seconds."""
        loaded.served += rows
        self._grants.ended(expected_s, now)
        self._arbiter.ended(LANE, now)


def _wish(lane: Lane, blocking_s: float, now: float) -> tuple[turns.Wish, tuple[int, ...]]:
    """What a lane asks of the arbiter, and the queries to refuse. Its policy sees queries that may stand in one batch;
    those of the next form where the ones before rather wait."""
    drop: tuple[int, ...] = ()
    until = math.inf
    for queue in lane.alike():
        # Those that may stand in one batch are of one size class.
        extent = queue[0].extent
        choice = lane.candidates(now, extent) + lane.relief_candidates(now, extent)
        latencies = {candidate.variant: candidate.latency for candidate in choice}
        view = LaneView(now, queue, choice, lane.application.late, blocking_s)
        decision = lane.policy.decide(view)
        drop += decision.drop
        if decision.run:
            return turns.Wish.of(lane.name, decision, queue, latencies, now), drop
        until = min(until, decision.wait_until)
    return turns.Wish.of(lane.name, Decision(drop=drop, wait_until=until), lane.queue, latencies, now), drop


def _default(ready: list[Loaded]) -> tuple[Loaded, ...]:
    for role in (Role.PLANNED, Role.LEAVING, Role.STANDBY):
        chosen = [loaded for loaded in ready if loaded.role is role]
        if chosen:
            return tuple(sorted(chosen, key=lambda loaded: (-loaded.accuracy, loaded.id)))
    return ()
