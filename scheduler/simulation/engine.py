"""The discrete-event engine: a virtual clock, devices that take their time, and the live system's own decisions.

Events are handled in the order of (time, number), numbers given as events are made; at one moment they come before
arrivals. What is simplified: a solve takes no virtual time, a plan is in force at once, and a gateway learns of an
answer one network delay after it. Routes leave out devices that are loading where others of the application are ready;
an old variant does not serve on while a new one loads (no make before break on one device). Late queries are shed.
"""

from __future__ import annotations

import gc
import math
import random
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from workers.batching import policies
from workers.gateway import routing as routers

from .controller import Controller, Planned, SimulationError
from .devices import Batch, Query, SimulatedDevice, Variant
from .scenario import Scenario
from .stacks import Stack

PENDING, IN_TIME, LATE, DROPPED = range(4)
#: a query is late when it is later than its SLO by more than rounding
ROUNDING_S = 1e-9

_END, _WAKE, _LOADED, _REACHED, _TOLD, _PERIOD, _BURST = range(7)


@dataclass(frozen=True)
class Record:
    """What happened to each query, by its place in the arrivals. ``outcome``: IN_TIME, LATE or DROPPED. ``answered``:
    seconds, when the gateway knew. ``variant``: index into ``variants``, -1 where none ran."""

    outcome: bytearray
    answered: array
    variant: array
    variants: tuple[tuple[str, str, float], ...]
    plans: tuple[Planned, ...]
    wall_s: float


class Engine:
    """One run of a scenario; :meth:`run` once.

    Args:
        progress: told the share of arrivals that are done, now and then.
    """

    def __init__(self, scenario: Scenario, stack: Stack, progress: Callable[[float], None] | None = None):
        self._scenario = scenario
        self._progress = progress
        self._names = scenario.applications
        self._slo = [scenario.slo_s[name] for name in self._names]
        self._controller = Controller(scenario, stack.strategy)
        self._router = routers.create(stack.routing, scenario.seed)
        self._noise = random.Random(f"{scenario.seed}:noise")
        self._index = {name: i for i, name in enumerate(self._names)}
        by_kind: dict[str, dict[str, Variant]] = {}
        for index, model in enumerate(scenario.models):
            for kind in model.points:
                variant = Variant(index, model.id, model.application, model.accuracy, model.latency(kind))
                by_kind.setdefault(kind, {})[model.id] = variant
        self._devices = {
            name: SimulatedDevice(
                name,
                kind,
                by_kind.get(kind, {}),
                scenario.max_resident.get(kind),
                lambda: policies.create(stack.batching),
            )
            for name, kind in scenario.devices
        }
        self._rates: dict[str, list[tuple[str, float]]] = {}
        self._heap: list[tuple[float, int, int, object]] = []
        self._number = 0
        self._arrived = 0
        self._seconds = 0
        self._counted = 0
        count = len(scenario.arrivals)
        self._outcome = bytearray(count)
        self._answered = array("d", bytes(8 * count))
        self._variant = array("i", [-1]) * count

    def run(self) -> Record:
        """Until every query has its answer.

        Raises:
            SimulationError: a strategy or a policy broke its contract.
        """
        began = time.monotonic()
        for name in self._devices:
            self._router.up(name)
        self._adopt(self._controller.plan(0.0, {name: () for name in self._devices}), 0.0)
        control = self._scenario.control
        if len(self._outcome):
            self._at(control.period_s, _PERIOD)
            self._at(control.burst_check_s, _BURST)
        # Millions of small objects that refer to nothing in a circle: the collector would only look through them.
        collected = gc.isenabled()
        gc.disable()
        try:
            self._loop()
        finally:
            if collected:
                gc.enable()
        pending = self._outcome.count(PENDING)
        if pending:
            raise SimulationError(f"{pending} queries still wait though nothing happens any more")
        return Record(
            self._outcome,
            self._answered,
            self._variant,
            tuple((model.application, model.name, model.accuracy) for model in self._scenario.models),
            tuple(self._controller.plans),
            time.monotonic() - began,
        )

    def _loop(self) -> None:
        times, applications = self._scenario.arrivals.times, self._scenario.arrivals.applications
        names, slo, heap, router = self._names, self._slo, self._heap, self._router
        arrived, net = self._controller.arrived, self._scenario.network_s
        on_arrival = self._controller.on_arrival
        handle = (
            self._on_end, self._on_wake, self._on_loaded, self._on_reached, self._on_told, self._on_period,
            self._on_burst,
        )  # fmt: skip
        devices, count, i = self._devices, len(times), 0
        while i < count or heap:
            if heap and (i == count or heap[0][0] <= times[i]):
                now, _, kind, subject = heappop(heap)
                self._arrived = i
                handle[kind](now, subject)
                continue
            now, index = times[i], applications[i]
            name = names[index]
            query = Query(i, index, now, now + slo[index] - net)
            i += 1
            arrived(name, 1, now)
            if on_arrival is not None and (rates := on_arrival(name, now)):
                self._plan(now, rates)
            chosen = router.pick(name, now, slo[index] - 2 * net)
            if chosen is None:
                self._drop(query, now)
                continue
            router.sent(chosen, name, 1, now)
            if net:
                self._at(now + net, _REACHED, (devices[chosen], query))
                continue
            device = devices[chosen]
            lane = device.lanes.get(name)
            if lane is None:
                self._reroute(device, [query], now)
                continue
            lane.add(query)
            if device.running is None and device.loading is None and not device.loads:
                self._decide(device, now)

    def _at(self, when: float, kind: int, subject: object = None) -> None:
        self._number += 1
        heappush(self._heap, (when, self._number, kind, subject))

    # --- queries -----------------------------------------------------------------------------------------------------

    def _finish(self, query: Query, outcome: int, when: float) -> None:
        if self._outcome[query.id] != PENDING:
            raise SimulationError(f"query {query.id} was answered twice, at {self._answered[query.id]:g} and {when:g}")
        self._outcome[query.id] = outcome
        self._answered[query.id] = when

    def _drop(self, query: Query, now: float) -> None:
        """Refused by the gateway."""
        self._finish(query, DROPPED, now)

    def _reroute(self, device: SimulatedDevice, queries: list[Query], now: float) -> None:
        """The gateway finds other devices for what ``device`` declines; over the network that takes there and back."""
        router, net = self._router, self._scenario.network_s
        for query in queries:
            name = self._names[query.application]
            router.done(device.name, name, 1, now, False)
            chosen = router.pick(name, now, query.deadline - now - 2 * net, exclude=(device.name,))
            if chosen is None:
                self._drop(query, now + net)
                continue
            router.sent(chosen, name, 1, now)
            other = self._devices[chosen]
            if net:
                self._at(now + 2 * net, _REACHED, (other, query))
            else:
                self._reach(other, query, now)

    def _on_reached(self, now: float, subject: tuple[SimulatedDevice, Query]) -> None:
        self._reach(*subject, now)

    def _reach(self, device: SimulatedDevice, query: Query, now: float) -> None:
        lane = device.lanes.get(self._names[query.application])
        if lane is None:
            self._reroute(device, [query], now)
            return
        lane.add(query)
        if device.idle:
            self._decide(device, now)

    # --- devices -----------------------------------------------------------------------------------------------------

    def _decide(self, device: SimulatedDevice, now: float) -> None:
        dropped: list[Query] = []
        wake_at = device.decide(now, dropped.append)
        if dropped:
            net = self._scenario.network_s
            for query in dropped:
                self._finish(query, DROPPED, now + net)
            self._tell(now, device, dropped, False)
        batch = device.running
        if batch is not None:
            run_s = device.profiled_s(batch.variant, len(batch.queries))
            if self._scenario.profile_noise:
                run_s *= self._noise.lognormvariate(0.0, self._scenario.profile_noise)
            device.wake_at = -1.0
            self._at(now + run_s, _END, device)
        elif wake_at < math.inf and wake_at != device.wake_at:
            if wake_at <= now:
                raise SimulationError(f"{device.name} at {now:g} s: the batch policy neither runs nor waits")
            device.wake_at = wake_at
            self._at(wake_at, _WAKE, device)

    def _on_wake(self, now: float, device: SimulatedDevice) -> None:
        if device.wake_at == now:
            device.wake_at = -1.0
            if device.idle:
                self._decide(device, now)

    def _on_end(self, now: float, device: SimulatedDevice) -> None:
        batch, variant = device.ended(now)
        net, slo, index = self._scenario.network_s, self._slo, variant.index
        when = now + net
        outcome, answered, variants = self._outcome, self._answered, self._variant
        for query in batch.queries:
            i = query.id
            if outcome[i]:
                raise SimulationError(f"query {i} was answered twice, at {answered[i]:g} and {when:g}")
            outcome[i] = IN_TIME if when - query.arrived <= slo[query.application] + ROUNDING_S else LATE
            answered[i] = when
            variants[i] = index
        if net:
            self._tell(now, device, batch.queries, True, batch)
        else:
            done, names, started = self._router.done, self._names, batch.started
            run_s, rows = now - started, len(batch.queries)
            for query in batch.queries:
                done(device.name, names[query.application], 1, now, True, started - query.arrived, run_s, rows)
        if device.loads:
            self._load(device, now)
        else:
            self._decide(device, now)

    def _tell(
        self, now: float, device: SimulatedDevice, queries: list[Query], served: bool, batch: Batch | None = None
    ) -> None:
        """The router hears how queries ended, one network delay later."""
        what = (device.name, queries, served, now - batch.started if batch else 0.0, batch.started if batch else now)
        if self._scenario.network_s:
            self._at(now + self._scenario.network_s, _TOLD, what)
        else:
            self._on_told(now, what)

    def _on_told(self, now: float, what: tuple[str, list[Query], bool, float, float]) -> None:
        device, queries, served, run_s, started = what
        done, rows, names = self._router.done, len(queries), self._names
        for query in queries:
            done(device, names[query.application], 1, now, served, started - query.arrived, run_s, rows)

    def _load(self, device: SimulatedDevice, now: float) -> None:
        """Begin the next load of an otherwise idle device."""
        load_s = self._scenario.load_time_s
        if device.load_next():
            self._at(now + load_s, _LOADED, device)
            self._router.state(device.name, {}, load_s * (1 + len(device.loads)), False, now)
        else:
            self._decide(device, now)

    def _on_loaded(self, now: float, device: SimulatedDevice) -> None:
        device.load_ended()
        self._load(device, now)
        if device.ready:
            self._set_routes()

    # --- control -----------------------------------------------------------------------------------------------------

    def _on_period(self, now: float, _subject: object) -> None:
        if self._still_arriving(now):
            self._plan(now)
            self._at(now + self._scenario.control.period_s, _PERIOD)

    def _on_burst(self, now: float, _subject: object) -> None:
        if self._still_arriving(now):
            rates = self._controller.burst(now)
            if rates:
                self._plan(now, rates)
            self._at(now + self._scenario.control.burst_check_s, _BURST)

    def _still_arriving(self, now: float) -> bool:
        """Whether the control loop has anything left to do; on the way, the seconds that are over are counted."""
        times, applications = self._scenario.arrivals.times, self._scenario.arrivals.applications
        while self._seconds + 1 <= now:
            counts: dict[str, float] = {}
            while self._counted < self._arrived and times[self._counted] < self._seconds + 1:
                name = self._names[applications[self._counted]]
                counts[name] = counts.get(name, 0.0) + 1
                self._counted += 1
            self._controller.second_over(self._seconds, counts)
            self._seconds += 1
        if self._progress is not None:
            self._progress(self._arrived / len(times))
        return self._arrived < len(times)

    def _plan(self, now: float, observed: dict[str, float] | None = None) -> None:
        costly = self._scenario.load_time_s > 0
        loaded = {name: d.warm() if costly else d.planned for name, d in self._devices.items()}
        self._adopt(self._controller.plan(now, loaded, observed), now)

    def _adopt(self, planned: Planned, now: float) -> None:
        allocation = planned.allocation
        here: dict[str, list] = {name: [] for name in self._devices}
        for placement in allocation.placements:
            here[placement.device].append(placement)
        declined: list[tuple[SimulatedDevice, list[Query]]] = []
        self._rates = {}
        for name, device in self._devices.items():
            declined.append((device, device.plan(here[name], self._index, planned.stand_by.get(name, ()))))
            for lane in device.lanes.values():
                candidate = lane.planned[0]
                self._router.service(name, lane.name, candidate.latency, candidate.max_batch)
                self._rates.setdefault(lane.name, []).append((name, sum(lane.rates.values())))
        if not self._scenario.load_time_s:
            # What takes no time needs not wait for the batch under way.
            for device in self._devices.values():
                while device.load_next():
                    device.load_ended()
        self._set_routes()
        for device in self._devices.values():
            if not device.ready:
                declined.append((device, self._better_elsewhere(device)))
        for device, queries in declined:
            self._reroute(device, queries, now)
        for device in self._devices.values():
            if device.running is None and device.loading is None:
                # Residents and turn lengths may have changed: what was to be decided later may be due.
                device.wake_at = -1.0
                self._load(device, now)

    def _better_elsewhere(self, device: SimulatedDevice) -> list[Query]:
        """What waits at a device that is loading, though others of its application are ready; taken out."""
        queries = []
        for lane in device.lanes.values():
            if any(self._devices[name].ready for name, _ in self._rates[lane.name]):
                queries += lane.take([query.id for query in lane.queue])
        return queries

    def _set_routes(self) -> None:
        """The plan's shares over the devices that are ready; over all of them where none is."""
        routes = {}
        for name, rates in self._rates.items():
            rates = [(d, rate) for d, rate in rates if self._devices[d].ready] or rates
            # An application whose rates are all zero is spread evenly over the devices that host it.
            routes[name] = rates if any(rate for _, rate in rates) else [(d, 1.0) for d, _ in rates]
        self._router.set_routes(routes)


def run(scenario: Scenario, stack: Stack, progress: Callable[[float], None] | None = None) -> Record:
    """Run a scenario; see :class:`Engine`."""
    return Engine(scenario, stack, progress).run()
