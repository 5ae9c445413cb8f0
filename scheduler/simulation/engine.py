"""The discrete-event engine: a virtual clock, the control loop, and the account of every query.

Events are handled in the order of (time, number), numbers given as events are made; at one moment they come before
arrivals. How queries come to devices is the business of the engines built on this one: :mod:`.early` binds a query to
a device when it arrives, :mod:`.late` holds it until a device is about to run it. What is simplified: a solve takes no
virtual time, a plan is in force at once, and a gateway learns of an answer one network delay after it. An old variant
does not serve on while a new one loads (no make before break on one device). Late queries are shed.
"""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappush

from workers.dispatch.stacks import Stack

from .controller import Controller, Planned, SimulationError
from .devices import Query, Variant
from .noise import RunTimes
from .scenario import Scenario

PENDING, IN_TIME, LATE, DROPPED = range(4)
#: a query is late when it is later than its SLO by more than rounding
ROUNDING_S = 1e-9


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


class Engine(ABC):
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
        self._run_times = RunTimes.of(scenario)
        self._heap: list[tuple[float, int, Callable[[float, object], None], object]] = []
        self._number = 0
        self._arrived = 0
        self._seconds = 0
        self._counted = 0
        count = len(scenario.arrivals)
        self._outcome = bytearray(count)
        self._answered = array("d", bytes(8 * count))
        self._variant = array("i", [-1]) * count

    def _variants(self) -> dict[str, dict[str, Variant]]:
        """What can run, by device type and id."""
        by_kind: dict[str, dict[str, Variant]] = {kind: {} for _, kind in self._scenario.devices}
        for index, model in enumerate(self._scenario.models):
            for kind in model.points:
                variant = Variant(index, model.id, model.application, model.accuracy, model.latency(kind))
                by_kind.setdefault(kind, {})[model.id] = variant
        return by_kind

    @abstractmethod
    def _loop(self) -> None:
        """Handle arrivals and events until there are none."""

    @abstractmethod
    def _loaded(self) -> Mapping[str, Iterable[str]]:
        """Variants by device that a plan may count as loaded."""

    @abstractmethod
    def _adopt(self, planned: Planned, now: float) -> None:
        """Put a plan in force."""

    def run(self) -> Record:
        """Until every query has its answer.

        Raises:
            SimulationError: a strategy or a policy broke its contract.
        """
        began = time.monotonic()
        self._adopt(self._controller.plan(0.0, {name: () for name, _ in self._scenario.devices}), 0.0)
        control = self._scenario.control
        if len(self._outcome):
            self._at(control.period_s, self._on_period)
            self._at(control.burst_check_s, self._on_burst)
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

    def _at(self, when: float, call: Callable[[float, object], None], subject: object = None) -> None:
        self._number += 1
        heappush(self._heap, (when, self._number, call, subject))

    def _finish(self, query: Query, outcome: int, when: float) -> None:
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
        self._adopt(self._controller.plan(now, self._loaded(), observed), now)
