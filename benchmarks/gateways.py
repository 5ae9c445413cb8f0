"""What it costs that several gateways book on the same devices: ``python -m benchmarks.gateways``.

Each gateway's dispatcher holds its own queries and knows of the others' work what executors tell. Simulated here are
one to four gateways (the live dispatcher, each seeing its share of an open-loop Poisson load) over executors that run
granted batches in order of arrival and give up what is late, with run times that stray. The load is a part of what all
devices can do with the quickest variant in its best batch. *violations* are queries that were late or refused,
*accuracy* is the mean over those in time, *load* and SLO are as given.

What executors tell: *waiting*, as they do: ten times a second while rows wait. *turns*: moreover, whenever a run begins
or ends, the gateways whose run it is not. *changes*: the same whenever a batch arrives, too. The figures of a lone
gateway are what all of them together could reach if they knew everything.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from scheduler.simulation.devices import Query
from workers.batching.latency import LatencyModel
from workers.dispatch.devices import Batch
from workers.dispatch.dispatcher import Dispatcher
from workers.dispatch.menu import Menu, Option

#: seconds of a message's way
WAY_S = 0.0005
#: seconds between states that an executor tells while rows wait
TELL_S = 0.1
APPLICATION = "a"
TELLS = ("waiting", "turns", "changes")


@dataclass(frozen=True)
class World:
    """``variants``: (accuracy, seconds of a batch without rows, seconds of a row); ``noise``: standard deviation of a
    run time's logarithm."""

    name: str
    variants: tuple[tuple[float, float, float], ...]
    devices: int
    slo_s: float = 0.2
    largest: int = 8
    noise: float = 0.05

    def menu(self) -> Menu:
        sizes = range(1, self.largest + 1)
        return Menu(
            [
                Option(i, accuracy, LatencyModel([(rows, base + each * rows) for rows in sizes]), self.largest)
                for i, (accuracy, base, each) in enumerate(self.variants)
            ]
        )

    def capacity(self) -> float:
        """Queries/s that all devices can do, at the lowest accuracy."""
        return self.devices * max(self.largest / (base + each * self.largest) for _, base, each in self.variants)


ONE = ((90.0, 0.005, 0.005),)
TWO = ((95.0, 0.020, 0.020), (85.0, 0.005, 0.005))
WORLDS = (
    World("one variant, 2 devices", ONE, 2),
    World("two variants, 2 devices", TWO, 2),
    World("two variants, 8 devices", TWO, 8),
)


@dataclass
class Outcome:
    """Of one run."""

    sent: int = 0
    in_time: int = 0
    late: int = 0
    refused: int = 0
    accuracy_sum: float = 0.0
    told: int = 0

    @property
    def violations(self) -> float:
        """Percent of what was sent."""
        return 100.0 * (self.late + self.refused) / self.sent

    @property
    def accuracy(self) -> float:
        """Percent, mean of those in time."""
        return self.accuracy_sum / max(1, self.in_time)


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
        elif self._run.tells == "changes":
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
                if self._run.tells != "waiting":
                    self._tell(now, gateway)
                return
        if self._run.tells != "waiting":
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


class Run:
    """``gateways`` share ``load`` (of the capacity) evenly for so many seconds."""

    def __init__(self, world: World, gateways: int, load: float, tells: str, seconds: float, seed: int):
        self.world = world
        self.tells = tells
        self.outcome = Outcome()
        #: run times: of their own, so that arrivals are the same however often a run is drawn
        self.dice = random.Random(seed + 1)
        self._heap: list[tuple[float, int, Callable, tuple]] = []
        self._number = 0
        menu = world.menu()
        self.executors = [Executor(self, name) for name in range(world.devices)]
        self.gateways = [Gateway(self, menu) for _ in range(gateways)]
        self._arrive(load * world.capacity(), seconds, random.Random(seed))
        for executor in self.executors:
            # Processes' clocks are not in step.
            first = TELL_S * self.dice.random()
            for turn in range(int(seconds / TELL_S)):
                self.at(first + turn * TELL_S, executor.tick)

    def _arrive(self, rate: float, seconds: float, dice: random.Random) -> None:
        now, whose = dice.expovariate(rate), random.Random(dice.random())
        while now < seconds:
            gateway = self.gateways[whose.randrange(len(self.gateways))]
            self.at(now, gateway.arrived, Query(self.outcome.sent, 0, now, now + self.world.slo_s))
            self.outcome.sent += 1
            now += dice.expovariate(rate)

    def at(self, when: float, call: Callable, *arguments) -> None:
        self._number += 1
        heappush(self._heap, (when, self._number, call, arguments))

    def ended(self, now: float, accuracy: float, queries: Sequence[Query]) -> None:
        for query in queries:
            if now > query.arrived + self.world.slo_s:
                self.outcome.late += 1
            else:
                self.outcome.in_time += 1
                self.outcome.accuracy_sum += accuracy

    def go(self) -> Outcome:
        """Until nothing happens any more. Every query has exactly one end, or it raises RuntimeError."""
        while self._heap:
            now, _, call, arguments = heappop(self._heap)
            call(now, *arguments)
        outcome = self.outcome
        if outcome.in_time + outcome.late + outcome.refused != outcome.sent:
            raise RuntimeError(f"queries were lost or answered twice: {outcome}")
        return outcome


def measure(loads: Sequence[float], counts: Sequence[int], seconds: float, seeds: int) -> Iterator[str]:
    """Rows of a Markdown table; medians over ``seeds`` runs."""
    yield "| world | load | gateways | told | violations % | late % | accuracy | states/s |"
    yield "|---|---:|---:|---|---:|---:|---:|---:|"
    for world in WORLDS:
        for load in loads:
            for count in counts:
                for tells in TELLS if count > 1 else TELLS[:1]:
                    runs = [Run(world, count, load, tells, seconds, 100 * seed).go() for seed in range(seeds)]
                    yield (
                        f"| {world.name} | {load:.0%} | {count} | {tells} "
                        f"| {statistics.median(run.violations for run in runs):.2f} "
                        f"| {statistics.median(100 * run.late / run.sent for run in runs):.2f} "
                        f"| {statistics.median(run.accuracy for run in runs):.2f} "
                        f"| {statistics.median(run.told for run in runs) / seconds:.0f} |"
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loads", type=float, nargs="+", default=[0.7, 0.8, 0.9], help="parts of the capacity")
    parser.add_argument("--gateways", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each simulated run")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for line in measure(options.loads, options.gateways, options.seconds, options.seeds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
