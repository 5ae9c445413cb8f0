"""Early binding by several gateways, each with the live router, over devices whose batch policy decides what runs."""

from __future__ import annotations

import math

from scheduler.simulation.devices import Query, SimulatedLane
from workers.batching import policies
from workers.batching.base import Candidate, LaneView, Outcome
from workers.gateway import routing

from .run import APPLICATION, WAY_S, Run


class Executor:
    """A device with one queue. Its plan: the two neighbouring variants that together just serve the load."""

    def __init__(self, run: Run, name: int, rate: float):
        self._run = run
        self.name = name
        self.lane = SimulatedLane(APPLICATION, 0, policies.create("nereus"))
        self._whose: dict[int, Gateway] = {}
        self._busy_until = 0.0
        self._running = False
        self._wake_at = math.inf
        self._told_rows = 0
        candidates = run.world.candidates()
        rates = run.world.rates(rate)
        planned = [candidate for candidate in candidates if rates.get(candidate.variant)]
        self.planned = max(planned, key=lambda candidate: rates[candidate.variant])
        self.lane.serve(planned, rates, [c for c in candidates if c not in planned])

    def reached(self, now: float, gateway: Gateway, query: Query) -> None:
        self._whose[query.id] = gateway
        self.lane.add(query)
        if not self._running:
            self._decide(now)

    def _decide(self, now: float) -> None:
        lane = self.lane
        if not lane.queue:
            return
        decision = lane.policy.decide(LaneView(now, lane.queue, lane.in_turn()))
        for query in lane.take(decision.drop) if decision.drop else ():
            self._run.at(now + WAY_S, self._whose.pop(query.id).refused, self.name)
        if decision.run:
            queries = lane.take(decision.run)
            (chosen,) = (c for c in lane.candidates if c.variant == decision.variant)
            expected_s = chosen.latency.seconds(len(queries))
            self._running, self._busy_until = True, now + expected_s
            self._run.at(now + self._run.takes(expected_s), self._ended, chosen, queries, now)
        elif decision.wait_until < math.inf:
            self._wake_at = decision.wait_until
            self._run.at(decision.wait_until, self._wake)
        elif decision.drop:
            self._decide(now)

    def _wake(self, now: float) -> None:
        if now >= self._wake_at and not self._running:
            self._wake_at = math.inf
            self._decide(now)

    def _ended(self, now: float, chosen: Candidate, queries: list[Query], started: float) -> None:
        lane, rows = self.lane, len(queries)
        self._running = False
        late = sum(query.deadline < now for query in queries)
        lane.policy.observe(Outcome(chosen.variant, rows, now - started, rows, late))
        if chosen.variant in lane.rows_served:
            lane.rows_served[chosen.variant] += rows
        for query in queries:
            gateway = self._whose.pop(query.id)
            self._run.at(now + WAY_S, gateway.answered, self.name, query, chosen.accuracy, started, now - started, rows)
        self._decide(now)

    def tick(self, now: float) -> None:
        """Ten times a second."""
        rows = len(self.lane.queue)
        if rows or self._told_rows:
            busy_s = max(0.0, self._busy_until - now) if self._running else 0.0
            for gateway in self._run.gateways:
                self._run.outcome.told += 1
                self._run.at(now + WAY_S, gateway.heard, self.name, busy_s, rows)
        self._told_rows = rows


class Gateway:
    """A router and what is done at its word."""

    def __init__(self, run: Run):
        self._run = run
        self._router = routing.create("least-completion")
        self._router.set_routes({APPLICATION: [(e.name, 1 / len(run.executors)) for e in run.executors]})
        for executor in run.executors:
            self._router.up(executor.name)
            self._router.service(executor.name, APPLICATION, executor.planned.latency, executor.planned.max_batch)

    def arrived(self, now: float, query: Query) -> None:
        device = self._router.pick(APPLICATION, now, query.deadline - now - 2 * WAY_S)
        self._router.sent(device, APPLICATION, 1, now)
        query.deadline -= WAY_S
        self._run.at(now + WAY_S, self._run.executors[device].reached, self, query)

    def refused(self, now: float, device: int) -> None:
        self._router.done(device, APPLICATION, 1, now, False)
        self._run.outcome.refused += 1

    def answered(
        self, now: float, device: int, query: Query, accuracy: float, started: float, run_s: float, rows: int
    ) -> None:
        queue_s = started - query.arrived - WAY_S
        self._router.done(device, APPLICATION, 1, now, True, queue_s, run_s, rows)
        self._run.ended(now, accuracy, [query])

    def heard(self, now: float, device: int, busy_s: float, rows: int) -> None:
        self._router.state(device, {APPLICATION: rows}, busy_s, False, now)
