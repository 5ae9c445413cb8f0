"""Late binding by several gateways, each with the live dispatcher, over executors that run what they are granted."""

from __future__ import annotations

import math
from collections import deque

from scheduler.simulation.devices import Query
from workers.dispatch.dispatcher import Dispatcher
from workers.dispatch.menu import Menu
from workers.dispatch.state import Batch

from .run import APPLICATION, WAY_S, Run


class Executor:
    """A device: granted batches in order of arrival, the one that runs, and until when it is expected to."""

    def __init__(self, run: Run, name: int):
        self._run = run
        self.name = name
        self.waiting: deque[tuple[Gateway, Batch]] = deque()
        self.running: tuple[Gateway, Batch] | None = None
        self.busy_until = 0.0
        self._told_rows = 0

    def granted(self, now: float, gateway: Gateway, batch: Batch) -> None:
        self.waiting.append((gateway, batch))
        if self.running is None:
            self._next(now)
        elif self._run.stack == "changes":
            self._tell(now, gateway)

    def _next(self, now: float) -> None:
        while self.waiting:
            gateway, batch = self.waiting.popleft()
            alone_s = batch.option.seconds(1)
            late = [query for query in batch.queries if now + alone_s + WAY_S > query.deadline]
            if late:
                self._run.at(now + WAY_S, gateway.given_back, batch, late)
            queries = [query for query in batch.queries if query not in late]
            if queries:
                expected_s = batch.option.seconds(len(queries))
                took_s = expected_s * self._run.dice.lognormvariate(0.0, self._run.world.noise)
                self.running, self.busy_until = (gateway, batch), now + expected_s
                self._run.at(now + took_s, self._ended, queries, took_s)
                if self._run.stack != "waiting":
                    self._tell(now, gateway)
                return
        if self._run.stack != "waiting":
            self._tell(now, None)

    def _ended(self, now: float, queries: list[Query], took_s: float) -> None:
        gateway, batch = self.running
        self.running, self.busy_until = None, 0.0
        self._run.at(now + WAY_S, gateway.answered, batch, queries, took_s)
        self._next(now)

    def tick(self, now: float) -> None:
        """Ten times a second."""
        rows = sum(batch.rows for _, batch in self.waiting)
        if rows or self._told_rows:
            self._tell(now, None)
        self._told_rows = rows

    def _tell(self, now: float, knows: Gateway | None) -> None:
        busy_s = max(0.0, self.busy_until - now)
        rows = sum(batch.rows for _, batch in self.waiting)
        for gateway in self._run.gateways:
            if gateway is not knows:
                self._run.outcome.told += 1
                self._run.at(now + WAY_S, gateway.heard, self.name, busy_s, rows)


class Gateway:
    """A dispatcher and what is done at its word."""

    def __init__(self, run: Run, menu: Menu):
        self._run = run
        self._menu = menu
        self._left: dict[Batch, int] = {}
        self._woken_at = math.inf
        self.dispatcher = Dispatcher()
        self.dispatcher.set_applications({APPLICATION: (run.world.slo_s, False)}, 0.0)
        for device in range(run.world.devices):
            self.dispatcher.set_menus(device, {APPLICATION: menu}, 0.0)
            self.dispatcher.set_way(device, 2 * WAY_S)
            self.dispatcher.set_up(device, True, 0.0)

    def arrived(self, now: float, query: Query) -> None:
        self.dispatcher.submit(APPLICATION, query, now)
        self._act(now)

    def heard(self, now: float, device: int, busy_s: float, rows: int) -> None:
        # As the live gateway reckons it.
        work_s = self._menu.options[0].seconds(rows) if rows else 0.0
        self.dispatcher.set_busy(device, now + busy_s + work_s, now)
        self._act(now)

    def answered(self, now: float, batch: Batch, queries: list[Query], took_s: float) -> None:
        self._run.ended(now, batch.option.worth, queries)
        self._landed(now, batch, len(queries), took_s if len(queries) == len(batch.queries) else None)
        self._act(now)

    def given_back(self, now: float, batch: Batch, queries: list[Query]) -> None:
        self._landed(now, batch, len(queries), None)
        self.dispatcher.declined(queries, now)
        self._act(now)

    def _landed(self, now: float, batch: Batch, queries: int, took_s: float | None) -> None:
        self._left[batch] -= queries
        if not self._left[batch]:
            del self._left[batch]
            self.dispatcher.ended(batch, now, took_s)

    def _wake(self, now: float) -> None:
        self._woken_at = math.inf
        if self.dispatcher.wake_at <= now:
            self.dispatcher.wake(now)
        self._act(now)

    def _act(self, now: float) -> None:
        dispatcher = self.dispatcher
        for batch in dispatcher.grants:
            self._left[batch] = len(batch.queries)
            self._run.at(now + WAY_S, self._run.executors[batch.device.name].granted, self, batch)
        dispatcher.grants.clear()
        self._run.outcome.refused += len(dispatcher.refused)
        dispatcher.refused.clear()
        if dispatcher.wake_at < self._woken_at:
            self._woken_at = dispatcher.wake_at
            self._run.at(max(now, self._woken_at), self._wake)
