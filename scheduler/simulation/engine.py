"""The discrete-event engine: virtual clock, control loop, account of queries.

The account has every query. Events are handled in the order of (time, number), numbers given as events are made; at one
moment they come before arrivals. The binding that decides live decides here which batch runs where and when;
:meth:`Engine._act` carries its decisions out on devices that run batches in order. Subclasses decide which variants
devices load, and when.

Simplifications: a solve takes no virtual time, a plan is in force at once, and the core learns of an answer one network
delay after it. An old variant does not serve on while a new one loads (no make before break on one device). Late
queries are shed.
"""

from __future__ import annotations

import gc
import math
import time
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from workers.dispatch.binding import Binding, Decisions, Dispatch, QueryClass, ServiceTerms

from .controller import Controller, Planned, SimulationError
from .devices import SimulatedDevice, SimulatedQuery, SimulatedVariant
from .run_times import RunTimes
from .scenario import Scenario, Start

PENDING, IN_TIME, LATE, DROPPED = range(4)
#: a query is late when it is later than its SLO by more than rounding
ROUNDING_S = 1e-9


@dataclass(frozen=True)
class Record:
    """The outcome of each query, by its place in the arrivals.

    Attributes:
        outcome: IN_TIME, LATE or DROPPED.
        answered: seconds, when the gateway knew.
        variant: index into ``variants``, -1 where none ran.
        loads: of variants that devices began, standby included.
    """

    outcome: bytearray
    answered: array
    variant: array
    variants: tuple[tuple[str, str, float], ...]
    plans: tuple[Planned, ...]
    loads: int
    wall_s: float
    cpu_s: float


class Engine(ABC):
    """One run of a scenario; :meth:`run` once."""

    def __init__(
        self,
        scenario: Scenario,
        strategy: str,
        binding: Binding,
        device: type[SimulatedDevice],
        progress: Callable[[float], None] | None = None,
    ):
        self._scenario = scenario
        self._network_s = scenario.network_s
        self._progress = progress
        self._names = scenario.applications
        self._slo = [scenario.slo_s[name] for name in self._names]
        self._controller = Controller(scenario, strategy)
        self._run_times = RunTimes.of(scenario)
        self._binding = binding
        self._devices = {name: device(name, kind, scenario.max_resident.get(kind)) for name, kind in scenario.devices}
        self._by_kind = self._variants()
        self._load_s = {model.id: scenario.load_s(model) for model in scenario.models}
        self._instant_loads = scenario.instant_loads
        self._index = {model.id: index for index, model in enumerate(scenario.models)}
        #: when the binding asked to be woken
        self._wake_at = math.inf
        self._heap: list[tuple[float, int, Callable[[float, object], None], object]] = []
        self._number = 0
        self._arrived = 0
        self._seconds = 0
        self._counted = 0
        count = len(scenario.arrivals)
        self._outcome = bytearray(count)
        self._answered = array("d", bytes(8 * count))
        self._variant = array("i", [-1]) * count
        binding.configured({name: ServiceTerms(scenario.slo_s[name]) for name in self._names}, 0.0)
        for name in self._devices:
            binding.rtt_changed(name, 2 * scenario.network_s)
            binding.device_changed(name, 0.0, up=True)

    def _variants(self) -> dict[str, dict[str, SimulatedVariant]]:
        """Variants that can run, by device type and id."""
        by_kind: dict[str, dict[str, SimulatedVariant]] = {kind: {} for _, kind in self._scenario.devices}
        for model in self._scenario.models:
            for kind in model.points:
                variant = SimulatedVariant(model.id, model.application, model.accuracy, model.latency(kind))
                by_kind.setdefault(kind, {})[model.id] = variant
        return by_kind

    def _loaded(self) -> Mapping[str, Iterable[str]]:
        """Variants by device that a plan may count as loaded."""
        return {name: device.warm() for name, device in self._devices.items()}

    @abstractmethod
    def _adopt(self, planned: Planned, now: float) -> None:
        """Put a plan in force."""

    @abstractmethod
    def _load(self, device: SimulatedDevice, now: float) -> None:
        """Begin a load on a device that does nothing, if one is due."""

    def run(self) -> Record:
        """Until every query has its answer; SimulationError: a contract was broken."""
        began, cpu_began = time.monotonic(), time.process_time()
        if self._scenario.start is not None:
            self._load_at_once(self._scenario.start)
        self._adopt(self._controller.plan(0.0, {name: () for name, _ in self._scenario.devices}), 0.0)
        control = self._scenario.control
        if len(self._outcome):
            self._at(control.period_s, self._on_period)
            self._at(control.burst_check_s, self._on_burst)
        # Millions of small objects, without reference cycles once answered: the collector would scan them in vain.
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
            sum(device.begun for device in self._devices.values()),
            time.monotonic() - began,
            time.process_time() - cpu_began,
        )

    def _load_at_once(self, start: Start) -> None:
        """Have devices hold what the plan in force wants there."""
        allocation = start.allocation
        for placement in allocation.placements:
            self._devices[placement.device].loaded[placement.variant] = None
        for name, variants in allocation.residents.items():
            self._devices[name].loaded.update(dict.fromkeys(variants))

    def _loop(self) -> None:
        times, applications = self._scenario.arrivals.times, self._scenario.arrivals.applications
        names, slo, heap, binding = self._names, self._slo, self._heap, self._binding
        classes = [QueryClass(name) for name in names]
        arrived, on_arrival = self._controller.arrived, self._controller.on_arrival
        count, i, inf = len(times), 0, math.inf
        when = times[0] if count else inf
        while True:
            due = heap[0][0] if heap else inf
            if due <= when and due <= self._wake_at:
                if due == inf:
                    return
                now, _, call, subject = heappop(heap)
                self._arrived = i
                call(now, subject)
            elif self._wake_at <= when:
                now = self._wake_at
                self._act(binding.wake(now), now)
                if self._wake_at <= now:
                    raise SimulationError(f"at {now:g} s: the binding neither dispatches nor waits")
            else:
                now, index = when, applications[i]
                query = SimulatedQuery(i, index, now, now + slo[index], classes[index])
                i += 1
                when = times[i] if i < count else inf
                arrived(names[index], 1, now)
                if on_arrival is not None and (rates := on_arrival(names[index], now)):
                    self._plan(now, rates)
                self._act(binding.arrived([query], now), now)

    def _act(self, decisions: Decisions, now: float) -> None:
        dispatches, refusals, self._wake_at = decisions
        if refusals:
            for query in refusals:
                self._finish(query, DROPPED, now)
        if not dispatches:
            return
        for batch in dispatches:
            device = self._devices[batch.device_name]
            if self._network_s:
                self._at(now + self._network_s, self._on_reached, (device, batch))
            else:
                self._reach(device, batch, now)

    # --- devices -----------------------------------------------------------------------------------------------------

    def _on_reached(self, now: float, subject: tuple[SimulatedDevice, Dispatch]) -> None:
        self._reach(*subject, now)

    def _reach(self, device: SimulatedDevice, batch: Dispatch, now: float) -> None:
        if device.loading is not None:
            self._reach_loading(device, batch, now)
        elif device.running is None:
            self._start(device, batch, now)
            if device.running is None:
                self._next(device, now)
        else:
            device.batches.append(batch)

    def _reach_loading(self, device: SimulatedDevice, batch: Dispatch, now: float) -> None:
        self._decline(batch, now)

    def _decline(self, batch: Dispatch, now: float) -> None:
        self._at(now + self._network_s, self._on_declined, batch)

    def _next(self, device: SimulatedDevice, now: float) -> None:
        """Run the next batch of a device that does nothing, or load what is due."""
        if not device.idle:
            return
        if now >= device.overdue_at:
            self._load(device, now)
            if device.loading is not None:
                # Batches that were dispatched meanwhile need not wait for that.
                for batch in device.batches:
                    self._decline(batch, now)
                device.batches.clear()
                return
        while device.batches and device.running is None:
            self._start(device, device.batches.pop(0), now)
        if device.loads and device.running is None:
            self._load(device, now)

    def _start(self, device: SimulatedDevice, batch: Dispatch, now: float) -> None:
        """Run a batch, or decline it where its variant is not there any more."""
        variant, rows = batch.option.variant, batch.rows
        if variant not in device.loaded:
            self._decline(batch, now)
            return
        run_s = batch.option.seconds(rows)
        if self._run_times is not None:
            run_s = self._run_times.draw(variant, device.kind, run_s)
        device.running, device.run_s, device.free_at = batch, run_s, now + run_s
        self._at(device.free_at, self._on_end, device)

    def _on_end(self, now: float, device: SimulatedDevice) -> None:
        batch, device.running = device.running, None
        net, run_s = self._network_s, device.run_s
        when, index = now + net, self._index[batch.option.variant]
        outcome, answered, variants, slo = self._outcome, self._answered, self._variant, self._slo
        for query in batch.queries:
            i = query.id
            if outcome[i]:
                self._finish(query, IN_TIME, when)
            outcome[i] = IN_TIME if when - query.arrived <= slo[query.application] + ROUNDING_S else LATE
            answered[i] = when
            variants[i] = index
            # The batch refers to the query, and no collector finds cycles.
            query.reservation = None
        if net:
            self._at(when, self._on_finished, (batch, run_s))
        else:
            if device.batches or now >= device.overdue_at:
                self._next(device, now)
            self._act(self._binding.finished(batch, now, run_s), now)
        if (device.loads or device.batches) and device.running is None:
            self._next(device, now)

    def _on_finished(self, now: float, ended: tuple[Dispatch, float]) -> None:
        batch, run_s = ended
        self._act(self._binding.finished(batch, now, run_s), now)

    def _on_declined(self, now: float, batch: Dispatch) -> None:
        self._act(self._binding.finished(batch, now), now)
        self._act(self._binding.returned(batch.queries, now), now)

    # --- accounts and plans ------------------------------------------------------------------------------------------

    def _at(self, when: float, call: Callable[[float, object], None], subject: object = None) -> None:
        self._number += 1
        heappush(self._heap, (when, self._number, call, subject))

    def _finish(self, query: SimulatedQuery, outcome: int, when: float) -> None:
        if self._outcome[query.id] != PENDING:
            raise SimulationError(f"query {query.id} was answered twice, at {self._answered[query.id]:g} and {when:g}")
        self._outcome[query.id] = outcome
        self._answered[query.id] = when

    def _on_period(self, now: float, _subject: object) -> None:
        if self._still_arriving(now):
            self._plan(now)
            self._at(now + self._scenario.control.period_s, self._on_period)

    def _on_burst(self, now: float, _subject: object) -> None:
        if self._still_arriving(now):
            rates = self._controller.burst(now)
            if rates:
                self._plan(now, rates)
            self._at(now + self._scenario.control.burst_check_s, self._on_burst)

    def _still_arriving(self, now: float) -> bool:
        """Whether there is anything left to do; seconds that are over are counted."""
        times, applications = self._scenario.arrivals.times, self._scenario.arrivals.applications
        while self._seconds + 1 <= now:
            over = bisect_left(times, self._seconds + 1, self._counted, self._arrived)
            counts = Counter(applications[self._counted : over])
            self._controller.second_over(self._seconds, {self._names[i]: float(n) for i, n in counts.items()})
            self._counted = over
            self._seconds += 1
        if self._progress is not None:
            self._progress(self._arrived / len(times) if times else 1.0)
        return self._arrived < len(times)

    def _plan(self, now: float, observed: dict[str, float] | None = None) -> None:
        self._adopt(self._controller.plan(now, self._loaded(), observed), now)
