"""Early binding: a router chooses a device when a query arrives, and the device's batch policies do the rest.

Routes leave out devices that are loading where others of the application are ready.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop

from workers.batching import policies
from workers.dispatch.stacks import Stack
from workers.gateway import routing as routers

from .controller import Planned, SimulationError
from .devices import Batch, Query, SimulatedDevice
from .engine import DROPPED, IN_TIME, LATE, ROUNDING_S, Engine
from .scenario import Scenario


class EarlyEngine(Engine):
    """One run with a router and batch policies."""

    def __init__(self, scenario: Scenario, stack: Stack, progress: Callable[[float], None] | None = None):
        super().__init__(scenario, stack, progress)
        self._router = routers.create(stack.routing, scenario.seed)
        self._index = {name: i for i, name in enumerate(self._names)}
        variants = self._variants()
        self._devices = {
            name: SimulatedDevice(
                name,
                kind,
                variants[kind],
                scenario.max_resident.get(kind),
                lambda: policies.create(stack.batching),
            )
            for name, kind in scenario.devices
        }
        for name in self._devices:
            self._router.up(name)
        self._rates: dict[str, list[tuple[str, float]]] = {}

    def _loop(self) -> None:
        times, applications = self._scenario.arrivals.times, self._scenario.arrivals.applications
        names, slo, heap, router = self._names, self._slo, self._heap, self._router
        arrived, net = self._controller.arrived, self._scenario.network_s
        on_arrival = self._controller.on_arrival
        devices, count, i = self._devices, len(times), 0
        while i < count or heap:
            if heap and (i == count or heap[0][0] <= times[i]):
                now, _, call, subject = heappop(heap)
                self._arrived = i
                call(now, subject)
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
                self._at(now + net, self._on_reached, (devices[chosen], query))
                continue
            device = devices[chosen]
            lane = device.lanes.get(name)
            if lane is None:
                self._reroute(device, [query], now)
                continue
            lane.add(query)
            if device.running is None and device.loading is None and not device.loads:
                self._decide(device, now)

    def _loaded(self) -> dict[str, list[str]]:
        costly = self._scenario.load_time_s > 0
        return {name: d.warm() if costly else list(d.planned) for name, d in self._devices.items()}

    # --- queries -----------------------------------------------------------------------------------------------------

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
                self._at(now + 2 * net, self._on_reached, (other, query))
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
            if self._run_times is not None:
                run_s = self._run_times.draw(self._scenario.models[batch.variant].id, run_s)
            device.wake_at = -1.0
            self._at(now + run_s, self._on_end, device)
        elif wake_at < math.inf and wake_at != device.wake_at:
            if wake_at <= now:
                raise SimulationError(f"{device.name} at {now:g} s: the batch policy neither runs nor waits")
            device.wake_at = wake_at
            self._at(wake_at, self._on_wake, device)

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
            self._at(now + self._scenario.network_s, self._on_told, what)
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
            self._at(now + load_s, self._on_loaded, device)
            self._router.state(device.name, {}, load_s * (1 + len(device.loads)), False, now)
        else:
            self._decide(device, now)

    def _on_loaded(self, now: float, device: SimulatedDevice) -> None:
        device.load_ended()
        self._load(device, now)
        if device.ready:
            self._set_routes()

    # --- control -----------------------------------------------------------------------------------------------------

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
