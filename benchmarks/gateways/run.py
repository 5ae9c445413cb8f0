"""A run of several gateways over the same devices, under a virtual clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from scheduler.simulation.devices import Query
from workers.batching.base import Candidate
from workers.batching.latency import LatencyModel
from workers.dispatch.menu import Menu, Option

#: seconds of a message's way
WAY_S = 0.0005
#: seconds between states that an executor tells while rows wait
TELL_S = 0.1
APPLICATION = "a"
#: what executors tell of late binding's work, and the stack that binds early
LATE, EARLY = ("waiting", "turns", "changes"), "early"


@dataclass(frozen=True)
class World:
    """``variants``: (accuracy, seconds of a batch without rows, seconds of a row); ``noise``: standard deviation of a
    run time's logarithm. The most accurate variant is the first."""

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

    def candidates(self) -> list[Candidate]:
        """The same as a batch policy takes them."""
        sizes = range(1, self.largest + 1)
        return [
            Candidate(i, accuracy, LatencyModel([(rows, base + each * rows) for rows in sizes]), self.largest)
            for i, (accuracy, base, each) in enumerate(self.variants)
        ]

    def rates(self, rate: float) -> dict[int, float]:
        """Rows/s by variant with which a device serves ``rate`` most accurately, 5% of its time being kept: at most two
        neighbouring variants."""
        most = [self.largest / (base + each * self.largest) for _, base, each in self.variants]
        rate = min(rate / 0.95, most[-1])
        if rate <= most[0]:
            return {0: rate}
        quicker = next(i for i, each in enumerate(most) if rate <= each)
        share = (most[quicker] - rate) / (most[quicker] - most[quicker - 1])
        return {
            i: r for i, r in ((quicker - 1, share * most[quicker - 1]), (quicker, (1 - share) * most[quicker])) if r
        }

    def capacity(self) -> float:
        """Queries/s that all devices can do, at the lowest accuracy."""
        return self.devices * max(self.largest / (base + each * self.largest) for _, base, each in self.variants)


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


class Run:
    """``executors`` and ``gateways`` are to be put in before :meth:`load`."""

    def __init__(self, world: World, stack: str, seed: int):
        self.world = world
        self.stack = stack
        self.outcome = Outcome()
        #: run times: of their own, so that arrivals are the same however often a run is drawn
        self.dice = random.Random(seed + 1)
        self._heap: list[tuple[float, int, Callable, tuple]] = []
        self._number = 0
        self.executors: list = []
        self.gateways: list = []

    def load(self, rate: float, seconds: float, uneven: float, seed: int) -> None:
        """The gateways share ``rate`` queries/s for so many seconds, the first of them ``uneven`` times as much as each
        other."""
        self._arrive(rate, seconds, [uneven] + [1.0] * (len(self.gateways) - 1), random.Random(seed))
        for executor in self.executors:
            # Processes' clocks are not in step.
            first = TELL_S * self.dice.random()
            for turn in range(int(seconds / TELL_S)):
                self.at(first + turn * TELL_S, executor.tick)

    def _arrive(self, rate: float, seconds: float, weights: list[float], dice: random.Random) -> None:
        now, whose = dice.expovariate(rate), random.Random(dice.random())
        while now < seconds:
            (gateway,) = whose.choices(self.gateways, weights)
            self.at(now, gateway.arrived, Query(self.outcome.sent, 0, now, now + self.world.slo_s))
            self.outcome.sent += 1
            now += dice.expovariate(rate)

    def at(self, when: float, call: Callable, *arguments) -> None:
        self._number += 1
        heappush(self._heap, (when, self._number, call, arguments))

    def takes(self, expected_s: float) -> float:
        """A run time."""
        return expected_s * self.dice.lognormvariate(0.0, self.world.noise)

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
