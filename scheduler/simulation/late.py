"""Late binding: the live gateway's own dispatcher holds queries, and grants batches to devices about to be free.

A simulated device runs what it is granted, in the order of arrival, and loads what the plan wants there in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush

from workers.dispatch.binding import Decisions, QueryClass, Terms
from workers.dispatch.dispatcher import Dispatcher
from workers.dispatch.menu import Menu, Option
from workers.dispatch.stacks import Stack
from workers.dispatch.state import Batch

from .ablations import BINDINGS
from .controller import Planned
from .devices import Query, Variant
from .engine import DROPPED, IN_TIME, LATE, ROUNDING_S, Engine
from .residents import Residents
from .scenario import Scenario
from .staging import PATIENCE, PLANNED_PATIENCE, may_load


class Worker:
    """A device: granted batches in order, the one that runs, and what is loaded. ``blocked``: what is not to be run for
    the moment. ``planned``: what the plan counts on. ``due``: since when what is to be loaded has been wanted; from
    ``overdue_at`` on a load goes before any batch."""

    __slots__ = ("batches", "blocked", "due", "name", "overdue_at", "planned", "residents", "run_s", "running")

    def __init__(self, name: str, residents: Residents):
        self.name = name
        self.residents = residents
        self.batches: list[Batch] = []
        self.running: Batch | None = None
        self.run_s = 0.0
        self.due: dict[str, float] = {}
        self.blocked: frozenset[str] = frozenset()
        self.planned: frozenset[str] = frozenset()
        self.overdue_at = math.inf

    def usable(self) -> list[str]:
        """What is loaded and may be run."""
        return [variant for variant in self.residents.loaded if variant not in self.blocked]


class LateEngine(Engine):
    """One run with the dispatcher."""

    def __init__(self, scenario: Scenario, stack: Stack, progress: Callable[[float], None] | None = None):
        super().__init__(scenario, stack, progress)
        self._binding = BINDINGS[stack.routing]
        self._dispatcher = Dispatcher(self._binding.bookings, self._binding.granting)
        variants = self._variants()
        self._by_kind = variants
        self._kind = dict(scenario.devices)
        self._workers = {
            name: Worker(name, Residents(scenario.max_resident.get(kind))) for name, kind in scenario.devices
        }
        self._options: dict[tuple[str, str], Option | None] = {}
        self._menus: dict[tuple[str, tuple[str, ...]], dict[QueryClass, Menu]] = {}
        self._classes = [QueryClass(name) for name in self._names]
        #: decided, but not carried out yet
        self._granted: list[Batch] = []
        self._refused: list[Query] = []
        self._wake = math.inf
        self._decided(self._dispatcher.configured({name: Terms(scenario.slo_s[name]) for name in self._names}, 0.0))
        for name in self._workers:
            self._dispatcher.rtt_changed(name, 2 * scenario.network_s)
            self._decided(self._dispatcher.device_changed(name, 0.0, up=True))
        #: applications for which something is still to be loaded
        self._moving: set[str] = set()
        self._ended = self._on_end
        self._application = {model.id: model.application for model in scenario.models}
        self._index = {model.id: index for index, model in enumerate(scenario.models)}

    def _loaded(self) -> dict[str, list[str]]:
        return {name: worker.residents.warm() for name, worker in self._workers.items()}

    def _loop(self) -> None:
        times, applications = self._scenario.arrivals.times, self._scenario.arrivals.applications
        names, slo, heap, dispatcher, classes = self._names, self._slo, self._heap, self._dispatcher, self._classes
        arrived, on_arrival = self._controller.arrived, self._controller.on_arrival
        count, i = len(times), 0
        granted, refused = self._granted, self._refused
        while True:
            when = times[i] if i < count else math.inf
            if heap and heap[0][0] <= when:
                if heap[0][0] <= self._wake:
                    now, _, call, subject = heappop(heap)
                    self._arrived = i
                    call(now, subject)
                else:
                    now = self._wake
                    self._decided(dispatcher.wake(now))
            elif self._wake <= when:
                if self._wake == math.inf:
                    return
                now = self._wake
                self._decided(dispatcher.wake(now))
            elif i == count:
                return
            else:
                now, index = when, applications[i]
                name = names[index]
                query = Query(i, index, now, now + slo[index], classes[index])
                i += 1
                arrived(name, 1, now)
                if on_arrival is not None and (rates := on_arrival(name, now)):
                    self._plan(now, rates)
                self._decided(dispatcher.arrived((query,), now))
            if granted or refused:
                self._act(now)

    def _decided(self, decisions: Decisions) -> None:
        """Note what is to be carried out when the event is handled."""
        self._granted += decisions.dispatches
        self._refused += decisions.refusals
        self._wake = decisions.wake_at

    def _act(self, now: float) -> None:
        """Carry out what the dispatcher decided."""
        net = self._scenario.network_s
        for query in self._refused:
            self._finish(query, DROPPED, now)
        self._refused.clear()
        granted = self._granted[:]
        self._granted.clear()
        for batch in granted:
            worker = self._workers[batch.device.name]
            if net:
                self._at(now + net, self._on_reached, (worker, batch))
            elif worker.running is None and worker.residents.loading is None:
                self._run(worker, batch, now)
            else:
                worker.batches.append(batch)

    def _on_reached(self, now: float, subject: tuple[Worker, Batch]) -> None:
        worker, batch = subject
        if worker.running is None and worker.residents.loading is None:
            if not self._run(worker, batch, now):
                self._next(worker, now)
        else:
            worker.batches.append(batch)

    def _next(self, worker: Worker, now: float) -> None:
        """Run the next batch of a free device, or load."""
        if now >= worker.overdue_at:
            self._load(worker, now)
            if worker.residents.loading is not None:
                # What was granted meanwhile need not wait for that.
                for batch in worker.batches:
                    self._at(now + self._scenario.network_s, self._on_declined, (batch, batch.queries))
                worker.batches.clear()
                return
        while worker.batches:
            if self._run(worker, worker.batches.pop(0), now):
                return
        self._load(worker, now)

    def _run(self, worker: Worker, batch: Batch, now: float) -> bool:
        """Run a batch on a free device; False where nothing of it can be."""
        net, option = self._scenario.network_s, batch.option
        if option.variant not in worker.residents.loaded:
            self._at(now + net, self._on_declined, (batch, batch.queries))
            return False
        # The executor gives up what would be late even alone.
        least = now + option.seconds(1) + net
        if least > batch.deadline + ROUNDING_S:
            late = [query for query in batch.queries if least > query.deadline + ROUNDING_S]
            batch.queries = [query for query in batch.queries if least <= query.deadline + ROUNDING_S]
            batch.rows = len(batch.queries)
            if late:
                self._at(now + net, self._on_given_up, late)
            if not batch.queries:
                self._at(now + net, self._on_declined, (batch, []))
                return False
        run_s = option.seconds(batch.rows)
        if self._run_times is not None:
            run_s = self._run_times.draw(option.variant, run_s)
        worker.running, worker.run_s = batch, run_s
        self._number += 1
        heappush(self._heap, (now + run_s, self._number, self._ended, worker))
        return True

    def _on_end(self, now: float, worker: Worker) -> None:
        batch, worker.running = worker.running, None
        net = self._scenario.network_s
        when = now + net
        outcome, answered, variants, slo = self._outcome, self._answered, self._variant, self._slo
        index = self._index[batch.option.variant]
        for query in batch.queries:
            i = query.id
            if outcome[i]:
                self._finish(query, IN_TIME, when)
            outcome[i] = IN_TIME if when - query.arrived <= slo[query.application] + ROUNDING_S else LATE
            answered[i] = when
            variants[i] = index
        if net:
            self._at(when, self._on_told, (batch, worker.run_s))
            self._next(worker, now)
            return
        run_s = worker.run_s
        if worker.batches or now >= worker.overdue_at:
            self._next(worker, now)
        self._decided(self._dispatcher.finished(batch, now, run_s))
        if self._granted or self._refused:
            self._act(now)
        if worker.running is None and worker.residents.loads:
            self._load(worker, now)

    def _on_told(self, now: float, told: tuple[Batch, float]) -> None:
        self._decided(self._dispatcher.finished(told[0], now, told[1]))
        if self._granted or self._refused:
            self._act(now)

    def _on_declined(self, now: float, subject: tuple[Batch, list[Query]]) -> None:
        batch, queries = subject
        self._decided(self._dispatcher.finished(batch, now))
        self._decided(self._dispatcher.returned(queries, now))

    def _on_given_up(self, now: float, queries: list[Query]) -> None:
        for query in queries:
            self._finish(query, DROPPED, now)

    # --- loads -------------------------------------------------------------------------------------------------------

    def _load(self, worker: Worker, now: float) -> None:
        """Begin a load on a free device, if one is due and may begin."""
        residents = worker.residents
        if residents.loading is not None or not residents.loads:
            return
        variant = self._next_load(worker, now)
        if variant is None:
            return
        load_s = self._scenario.load_time_s
        residents.begin(variant)
        # Each load has the others wait anew: one after the other, they would keep the device from serving for long.
        worker.due.clear()
        self._due(worker, now + load_s)
        self._offer(worker, now)
        until = now + load_s + 2 * self._scenario.network_s
        self._decided(self._dispatcher.set_away(worker.name, until, now))
        self._at(now + load_s, self._on_loaded, worker)
        if self._granted or self._refused:
            self._act(now)

    def _due(self, worker: Worker, now: float) -> None:
        """After a change of what is to be loaded."""
        before = worker.overdue_at
        worker.due = {variant: worker.due.get(variant, now) for variant in worker.residents.loads}
        worker.overdue_at = min((self._overdue_at(worker, variant) for variant in worker.due), default=math.inf)
        if worker.overdue_at != before and now < worker.overdue_at < math.inf:
            # Nothing may happen there until then.
            self._at(worker.overdue_at, self._on_overdue, worker)

    def _overdue_at(self, worker: Worker, variant: str) -> float:
        patience = PLANNED_PATIENCE if variant in worker.planned else PATIENCE
        return worker.due[variant] + patience * self._scenario.load_time_s

    def _on_overdue(self, now: float, worker: Worker) -> None:
        if worker.running is None:
            self._load(worker, now)

    def _next_load(self, worker: Worker, now: float) -> str | None:
        """The variant to load now, if any: of an application that nothing serves, else the first in the plan's order
        that may."""
        residents, kind, application = worker.residents, self._kind[worker.name], self._application
        others = [other for other in self._workers.values() if other is not worker]
        peers = [other for other in others if self._kind[other.name] == kind]
        hosts: dict[str, int] = {}
        for other in others:
            if other.residents.loading is None:
                for name in {application[variant] for variant in other.usable()}:
                    hosts[name] = hosts.get(name, 0) + 1
        here = {application[variant] for variant in worker.usable()}
        # What another device is loading needs no second one.
        coming = {application[other.residents.loading] for other in others if other.residents.loading is not None}
        served = here | hosts.keys() | coming
        loading = sum(other.residents.loading is not None for other in peers)
        for variant in sorted(residents.loads, key=lambda variant: application[variant] in served):
            if may_load(
                application[variant],
                here,
                self._scenario.load_time_s,
                now >= self._overdue_at(worker, variant),
                loading,
                len(peers) + 1,
                lambda name: hosts.get(name, 0),
                lambda name: self._dispatcher.pressure(name, now),
                self._scenario.slo_s.__getitem__,
            ):
                return variant
        return None

    def _move(self, now: float) -> None:
        """After a change of what is still to be loaded: whose applications wait for it."""
        before, self._moving = self._moving, set()
        for worker in self._workers.values():
            residents = worker.residents
            coming = [*residents.loads, *([] if residents.loading is None else [residents.loading])]
            self._moving |= {self._application[variant] for variant in coming}
        moved = before - self._moving
        for worker in self._workers.values():
            residents = worker.residents
            if any(self._application[v] in moved and v not in residents.wanted for v in residents.loaded):
                self._offer(worker, now)

    def _on_loaded(self, now: float, worker: Worker) -> None:
        worker.residents.ended()
        self._move(now)
        self._offer(worker, now)
        self._decided(self._dispatcher.set_away(worker.name, now, now))
        self._next(worker, now)
        for other in self._workers.values():
            if other.running is None and not other.batches:
                self._load(other, now)

    def _adopt(self, planned: Planned, now: float) -> None:
        resident = {name: [] for name in self._workers}
        if self._binding.stand_by:
            resident = {name: list(planned.allocation.residents.get(name, ())) for name in self._workers}
        for placement in planned.allocation.placements:
            if placement.variant not in resident[placement.device]:
                resident[placement.device].append(placement.variant)
        for name, some in planned.stand_by.items():
            resident[name] += [variant for variant in some if variant not in resident[name]]
        for name, worker in self._workers.items():
            worker.blocked = planned.blocked[name]
            worker.planned = frozenset(p.variant for p in planned.allocation.placements if p.device == name)
            worker.residents.plan(sorted(resident[name], key=worker.blocked.__contains__))
            if not self._scenario.load_time_s:
                # What takes no time needs not wait for the batch under way.
                while worker.residents.loads:
                    worker.residents.begin(worker.residents.loads[0])
                    worker.residents.ended()
            self._due(worker, now)
        self._move(now)
        for worker in self._workers.values():
            self._offer(worker, now)
            if worker.running is None and not worker.batches:
                self._load(worker, now)
        self._act(now)

    def _offer(self, worker: Worker, now: float) -> None:
        """Tell the dispatcher what the device can run now, and while it loads: what it can run after that."""
        kind, residents = self._kind[worker.name], worker.residents
        # What the plan does not name any more serves on only until its application has moved to what it does name.
        warm = [
            variant
            for variant in residents.warm()
            if variant not in worker.blocked
            and (variant in residents.wanted or (self._binding.stand_by and self._application[variant] in self._moving))
        ]
        key = (kind, tuple(sorted(warm)))
        menus = self._menus.get(key)
        if menus is None:
            by_application: dict[str, list[Option]] = {}
            for id in key[1]:
                variant = self._by_kind[kind][id]
                option = self._option(kind, variant)
                if option is not None:
                    by_application.setdefault(variant.application, []).append(option)
            menus = self._menus[key] = {
                QueryClass(name): self._binding.menu(options) for name, options in by_application.items()
            }
        self._decided(self._dispatcher.offered(worker.name, menus, now))

    def _option(self, kind: str, variant: Variant) -> Option | None:
        """None: it is too slow for the SLO whatever the batch."""
        key = (kind, variant.id)
        if key not in self._options:
            slo_s = self._scenario.slo_s[variant.application] * self._binding.share_of_slo
            rows = [n for n in range(1, variant.latency.largest + 1) if variant.latency.seconds(n) <= slo_s]
            self._options[key] = (
                Option(variant.id, variant.accuracy, variant.latency, max(rows)) if rows and rows[0] == 1 else None
            )
        return self._options[key]
