"""Devices that run dispatched batches under a virtual clock.

They keep an account of every query. After each call everything that must hold is checked (:mod:`.invariants`). Batches
run in the order in which they reach their device; answers take as long back as the batch took there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

import pytest

from workers.dispatch.binding import Decisions, QueryClass, ServiceTerms
from workers.dispatch.feedback import learn
from workers.dispatch.late.binding import LateBinding
from workers.dispatch.late.state import ScheduledBatch
from workers.dispatch.latency import LatencyModel
from workers.dispatch.options import OptionSet, ServingOption

from .invariants import check

WAITING, DISPATCHED, ANSWERED, REFUSED, WITHDRAWN = "waiting", "dispatched", "answered", "refused", "withdrawn"
ROUNDING_S = 1e-8
#: wakes in a row without progress after which a query counts as waiting forever
PATIENCE = 20_000


def option(variant: str, accuracy: float, points: Mapping[int, float], rows: int | None = None, weight: float = 1.0):
    """Return an option with ``points`` {batch: seconds}; sizes between cost what the larger costs."""
    latency = LatencyModel(list(points.items()), interpolate=False)
    return ServingOption(variant, accuracy, latency, rows or latency.largest, weight)


def menu(*options: ServingOption) -> OptionSet:
    return OptionSet(options)


#: an accurate, slow option and a quick one, and both as the options of an application
LARGE = option("large", 100, {1: 0.1, 2: 0.2, 4: 0.4}, rows=2)
SMALL = option("small", 90, {1: 0.01, 2: 0.014, 4: 0.02, 8: 0.03})
BOTH = {"faces": menu(LARGE, SMALL)}


def class_of(name: str | QueryClass) -> QueryClass:
    return name if isinstance(name, QueryClass) else QueryClass(name)


def terms(applications: Mapping[str | QueryClass, tuple[float, bool]]) -> dict[str, ServiceTerms]:
    sizes: dict[str, tuple[int, ...]] = {}
    for name in map(class_of, applications):
        sizes[name.application] = (*sizes.get(name.application, ()), name.size)
    return {
        class_of(name).application: ServiceTerms(*given, sizes[class_of(name).application])
        for name, given in applications.items()
    }


class Query:
    """A query and its state.

    Attributes:
        due: when its answer is wanted.
        deadline: the same at first; it is the binding's to change.
        state: one of :data:`WAITING` and those that follow it.
    """

    def __init__(self, id: int, application: str, arrived: float, due: float, rows: int, key: object = None):
        self.id = id
        self.application = application
        self.query_class = class_of(application)
        self.arrived = arrived
        self.due = self.deadline = due
        self.rows = rows
        self.key = key
        self.reservation = None
        self.state = WAITING
        self.answered = math.nan
        self.batch: ScheduledBatch | None = None

    def __repr__(self) -> str:
        return f"<{self.application} {self.id}: {self.rows} rows, {self.arrived:g} to {self.due:g}, {self.state}>"

    @property
    def variant(self) -> str | None:
        return None if self.batch is None else self.batch.option.variant

    @property
    def device(self):
        return None if self.batch is None else self.batch.device_name


class World:
    """A binding with its devices.

    Args:
        applications: SLO in seconds by name, or (SLO, whether late queries are served).
        devices: option sets by application, by device. ``rtt_s``: of all devices.
        slowness: how often the expected time the next batch on a device takes; called with its name.
        exact: all reports are true, so batches dispatched in time must be answered in time.
    """

    def __init__(
        self, applications, devices: Mapping[str, Mapping[str, OptionSet]], rtt_s=0.0, slowness=None, exact=True
    ):
        self.binding = LateBinding()
        self.now = 0.0
        self.queries: list[Query] = []
        self.batches: list[ScheduledBatch] = []
        self.under_way: dict[str, list[ScheduledBatch]] = {}
        self.exact = exact and slowness is None
        #: devices changed as the schedule could not expect, as do those with a round trip longer than a batch:
        #: only two batches are in flight there, so a third waits for an answer
        options = [its for menus in devices.values() for menu in menus.values() for its in menu.options]
        runs_s = [its.seconds(rows) for its in options for rows in range(1, its.max_rows + 1)]
        self.disturbed = rtt_s > min(runs_s, default=math.inf)
        self.rtts: dict[str, float] = {}
        self.decisions: list[tuple] = []
        self.wake_at = math.inf
        self._slowness = slowness or (lambda device: 1.0)
        self._heap: list[tuple[float, int, ScheduledBatch, float]] = []
        self._free_at: dict[str, float] = {}
        self._number = 0
        self.set_applications(applications)
        for name, menus in devices.items():
            self.set_rtt(name, rtt_s)
            self.offer(name, menus)
            self.set_up(name, True)

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(self, method: str, *arguments):
        self._act(getattr(self.binding, method)(*arguments, self.now))

    def offer(self, device: str, menus: Mapping[str, OptionSet]) -> None:
        self.offer_all({device: menus})

    def offer_all(self, menus_by_device: Mapping[str, Mapping[str, OptionSet]]) -> None:
        offered = {
            device: {class_of(name): menu for name, menu in menus.items()} for device, menus in menus_by_device.items()
        }
        self.call("offered", offered)

    def set_up(self, device: str, up: bool) -> None:
        self._act(self.binding.device_changed(device, self.now, up=up))

    def set_applications(self, applications) -> None:
        self.applications = {
            name: given if isinstance(given, tuple) else (given, False) for name, given in applications.items()
        }
        self.call("configured", terms(self.applications))

    def set_rtt(self, device: str, rtt_s: float) -> None:
        self.rtts[device] = rtt_s
        self.binding.rtt_changed(device, rtt_s)

    def overtake(self, device: str, seconds: float) -> None:
        """The device loads a variant once it is idle, before the batch that is on its way there."""
        self.exact = False
        batch = self.under_way[device][-1]
        [(_, number, _, run_s)] = [entry for entry in self._heap if entry[2] is batch]
        self.hang(batch)
        until = self.now + seconds
        heappush(self._heap, (until + run_s, number, batch, run_s))
        self._free_at[device] = until - self.rtts[device] / 2 + run_s
        self._act(self.binding.device_changed(device, self.now, busy_until=until))

    def back(self, device: str) -> None:
        self._act(self.binding.device_changed(device, self.now, busy_until=self.now))

    def busy(self, device: str, seconds: float) -> None:
        self.disturbed = True
        self._free_at[device] = max(self._free_at.get(device, 0.0), self.now + seconds - self.rtts[device] / 2)
        self._act(self.binding.device_changed(device, self.now, busy_until=self.now + seconds))

    def free(self, device: str) -> None:
        self._free_at[device] = self.now
        self.back(device)

    def settle(self) -> None:
        for device in self.binding._groups.devices.values():
            for known in [option for menu in device.option_sets.values() for option in menu.options]:
                for _ in range(200):
                    learn(device, known, 1, known.seconds(1), self.now)
                    self.binding._groups.update(device, self.now)

    def submit(self, application: str, rows: int = 1, budget_s: float | None = None, key: object = None) -> Query:
        waiting = [other for other in self.queries if other.state == WAITING] if self.exact else []
        (query,) = self.submit_together([(application, rows, budget_s, key)])
        refused = [other for other in waiting if other.state == REFUSED]
        assert not refused, f"{query} cost others the place that they had: {refused}"
        return query

    def submit_together(self, asked: Sequence[tuple[str, int, float | None, object]]) -> list[Query]:
        """Submit queries that arrive at once.

        Args:
            asked: (application, rows, seconds that it has or None, key) of each. None: the application's SLO.
        """
        queries = []
        for application, rows, budget_s, key in asked:
            budget_s = self._slo_s(application) if budget_s is None else budget_s
            queries.append(Query(len(self.queries), application, self.now, self.now + budget_s, rows, key))
            self.queries.append(queries[-1])
        self.call("arrived", queries)
        return queries

    def _slo_s(self, application: str | QueryClass) -> float:
        whole = class_of(application)._replace(permitted=None)
        known = self.applications.get(whole) or self.applications.get(whole.application)
        return known[0] if known else 1.0

    def withdraw(self, query: Query) -> bool:
        waits = query.state == WAITING
        if waits:
            query.state = WITHDRAWN
        self.call("withdrawn", query)
        return waits

    def lose(self, device: str) -> list[Query]:
        self.disturbed = True
        batches = self.under_way.pop(device, [])
        self._free_at[device] = self.now
        self.call("lost", device)
        orphans = [query for batch in batches for query in batch.queries]
        self._hand_in(orphans)
        return orphans

    def decline(self, batch: ScheduledBatch) -> None:
        self.disturbed = True
        self.under_way[batch.device_name].remove(batch)
        self.call("finished", batch)
        self._hand_in(batch.queries)

    def hang(self, batch: ScheduledBatch) -> None:
        self._free_at[batch.device.name] = math.inf
        self._heap = [entry for entry in self._heap if entry[2] is not batch]
        heapify(self._heap)

    def _hand_in(self, queries: list[Query]) -> None:
        for query in queries:
            assert query.state == DISPATCHED, query
            query.state = WAITING
        self.call("returned", queries)

    # --- time --------------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.until(self.now + seconds)

    def until(self, when: float) -> None:
        while (at := self._next()) <= when:
            self._step(at)
        self.now = when

    def finish(self) -> None:
        for _ in range(PATIENCE):
            at = self._next()
            if at == math.inf:
                break
            self._step(at)
        waiting = [query for query in self.queries if query.state in (WAITING, DISPATCHED)]
        assert not waiting, f"nothing happens any more, and these wait: {waiting[:5]}"

    def wake_alone(self) -> None:
        """Pass the time by wakes only, as if no answer ever came.

        In the end nothing is scheduled.

        Raises:
            AssertionError: queries are still waiting.
        """
        for _ in range(PATIENCE):
            if self.wake_at == math.inf:
                assert not [query for query in self.queries if query.state == WAITING]
                return
            self.wake()
        raise AssertionError(f"woken forever; {[q for q in self.queries if q.state == WAITING][:5]} wait")

    def wake(self) -> None:
        self.now = max(self.now, self.wake_at)
        decisions = self.binding.wake(self.now)
        assert decisions.wake_at > self.now, "woken in vain, again and again"
        self._act(decisions)

    def oversleep(self, seconds: float) -> None:
        """Let time pass without the calls that are due in it; they come afterwards."""
        self.now += seconds
        if self.wake_at < self.now:
            self.wake()

    def _next(self) -> float:
        while self._heap and self._heap[0][2] not in self.under_way.get(self._heap[0][2].device.name, ()):
            heappop(self._heap)
        return min(self._heap[0][0] if self._heap else math.inf, self.wake_at)

    def _step(self, at: float) -> None:
        if self._heap and self._heap[0][0] <= self.wake_at:
            at, _, batch, run_s = heappop(self._heap)
            self.now = max(self.now, at)
            self.under_way[batch.device.name].remove(batch)
            for query in batch.queries:
                assert query.state == DISPATCHED and query.batch is batch
                query.state, query.answered = ANSWERED, self.now
                if self.exact:
                    assert query.answered <= query.deadline + ROUNDING_S, f"{query} was answered at {self.now:g}"
            self._act(self.binding.finished(batch, self.now, run_s))
        else:
            self.wake()

    # --- what is decided ---------------------------------------------------------------------------------------------

    def _act(self, decisions: Decisions) -> None:
        self.wake_at = decisions.wake_at
        refused = decisions.refusals
        for batch in decisions.dispatches:
            self._dispatched(batch)
        for query in refused:
            assert query.state == WAITING, f"{query} is refused"
            query.state = REFUSED
            self.decisions.append(("refused", self.now, query.id))
        self._check(refused)

    def _check(self, refused: Sequence[Query]) -> None:
        for query in refused:
            self._was_hopeless(query)
            assert not self.exact or query.arrived == self.now or self.disturbed, f"{query} had a place and lost it"
        check(self.binding, self.now, self.wake_at)
        for query in self.queries:
            scheduled = query.reservation is not None and not query.reservation.dispatched
            assert scheduled == (query.state == WAITING), query

    def _dispatched(self, batch: ScheduledBatch) -> None:
        device = batch.device.name
        ids = tuple(query.id for query in batch.queries)
        self.decisions.append(("dispatched", self.now, device, batch.option.variant, ids, batch.end))
        for query in batch.queries:
            assert query.state == WAITING, f"{query} is dispatched"
            query.state, query.batch = DISPATCHED, batch
        assert batch.rows == sum(query.rows for query in batch.queries)
        assert batch.rows <= batch.option.max_rows or len(batch.queries) == 1
        assert batch.end <= batch.deadline + ROUNDING_S, f"bound to be late by {batch.end - batch.deadline:g} s"
        self.batches.append(batch)
        self.under_way.setdefault(device, []).append(batch)
        assert len(self.under_way[device]) <= 2
        rtt_s = self.rtts[device]
        transfer_s = batch.option.row_transfer_s * batch.rows
        start = max(self.now + rtt_s / 2 + transfer_s, self._free_at.get(device, 0.0))
        run_s = (batch.option.seconds(batch.rows) - transfer_s) * self._slowness(device)
        self._free_at[device] = start + run_s
        self._number += 1
        heappush(self._heap, (start + run_s + rtt_s / 2, self._number, batch, run_s))

    def _was_hopeless(self, query: Query) -> None:
        groups = self.binding._groups
        if query.query_class not in groups.classes:
            return
        for device in groups.devices.values():
            menu = device.option_sets.get(query.query_class)
            if menu is None or not device.up or device.dispatched or device.scheduled:
                continue
            start = max(self.now + device.rtt_s, device.free_at)
            for option in menu.options:
                end = start + device.seconds(option, query.rows)
                assert end > query.deadline, f"{query} refused, but {device.name} is idle and had it done by {end:g}"


def answers(world):
    """(variant, ms from arrival to answer), by query; None where there is none."""
    world.finish()
    return [
        (query.variant, pytest.approx((query.answered - query.arrived) * 1000, abs=1e-3))
        if query.state == ANSWERED
        else None
        for query in world.queries
    ]
