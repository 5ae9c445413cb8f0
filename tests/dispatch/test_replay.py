"""Recorded runs of late binding replay bit for bit.

Each run calls the binding as a cluster would. Of its decisions a digest is kept for every :data:`STRETCH` of them, in
``replay.json``, so that a change shows, and where. A change of behaviour records anew:

    python -m tests.dispatch.test_replay
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from heapq import heappop, heappush
from pathlib import Path

import pytest

from workers.dispatch.binding import QueryClass, ServiceTerms
from workers.dispatch.late.binding import LateBinding

from .driver import Query, menu, option

RECORDED = Path(__file__).with_name("replay.json")
STRETCH = 100
SECONDS = 6.0
#: seconds of one row of the quickest variant, by device type and application
SPEEDS = {"cpu": {"a": 0.008, "b": 0.02, "c": 0.06}, "gpu": {"a": 0.003, "b": 0.004, "c": 0.01}}
#: variants: accuracy, how many times the quickest one's seconds, and what each further row costs of the first
VARIANTS = [("rough", 80.0, 1.0, 0.3), ("fair", 92.0, 2.2, 0.45), ("exact", 100.0, 5.0, 0.7)]
SLOS = {"a": (0.1, False), "b": (0.3, False), "c": (0.5, True)}
#: name: devices by type, queries/s, round trip, noise
WORLDS = {
    "few devices": ({"cpu": 2, "gpu": 1}, 120, 0.002, 0.1),
    "overload": ({"cpu": 4, "gpu": 2}, 900, 0.0, 0.0),
    "noise": ({"cpu": 6, "gpu": 3}, 500, 0.004, 0.4),
    "many devices": ({"cpu": 24, "gpu": 16}, 1500, 0.001, 0.05),
}


def offered(kind: str, without: str = "") -> dict:
    """Options of a device by class, as fresh objects."""
    found = {}
    for name, first_s in SPEEDS[kind].items():
        options = []
        for variant, accuracy, times, more in VARIANTS:
            points = {rows: first_s * times * (1 + more * (rows - 1)) for rows in (1, 2, 4, 8)}
            if points[1] < SLOS[name][0] and variant != without:
                options.append(option(f"{name}-{variant}", accuracy, points))
        if options:
            found[QueryClass(name)] = menu(*options)
    return found


class Cluster:
    """Devices that run what they are sent, in order; ``decisions``: a line each."""

    def __init__(self, devices: dict[str, int], rate: float, rtt_s: float, noise: float):
        self.draw = random.Random(f"{devices} {rate}")
        self.rtt_s, self.noise = rtt_s, noise
        self.binding, self.decisions = LateBinding(), []
        self.heap, self.numbers, self.wake_at = [], itertools.count(), 0.0
        self.kinds = {f"{kind}{i}": kind for kind, count in devices.items() for i in range(count)}
        self.free_at = dict.fromkeys(self.kinds, 0.0)
        self.under_way: dict[str, list] = {name: [] for name in self.kinds}
        self.act(self.binding.configured({name: ServiceTerms(*terms) for name, terms in SLOS.items()}, 0.0), 0.0)
        for name in self.kinds:
            self.binding.rtt_changed(name, rtt_s)
            self.act(self.binding.device_changed(name, 0.0, up=True), 0.0)
        self.act(self.binding.offered({name: offered(kind) for name, kind in self.kinds.items()}, 0.0), 0.0)
        at = 0.0
        while (at := at + self.draw.expovariate(rate)) < SECONDS:
            together = 1 if self.draw.random() < 0.9 else 5
            self.at(at, self.arrive, [self.query(at) for _ in range(together)])
        first, last = next(iter(self.kinds)), list(self.kinds)[-1]
        self.at(1.5, self.offer, first)
        self.at(2.0, self.load, last)
        self.at(3.0, self.lose, last)
        self.at(3.5, self.restore, last)
        self.at(4.0, self.busy, first)

    def query(self, at: float) -> Query:
        name = self.draw.choice("aaabbc")
        budget_s = SLOS[name][0] * self.draw.choice([1.0, 1.0, 1.0, 0.6])
        query = Query(next(self.numbers), name, at, at + budget_s, self.draw.choice([1, 1, 1, 1, 2]))
        if self.draw.random() < 0.03:
            query.query_class = QueryClass(name, 0, frozenset([f"{name}-rough", f"{name}-fair"]))
        return query

    # --- events ------------------------------------------------------------------------------------------------------

    def at(self, when: float, call, subject) -> None:
        heappush(self.heap, (when, next(self.numbers), call, subject))

    def run(self) -> list[str]:
        while True:
            due = self.heap[0][0] if self.heap else float("inf")
            if self.wake_at < due:
                self.act(self.binding.wake(self.wake_at), self.wake_at)
            elif self.heap:
                now, _, call, subject = heappop(self.heap)
                call(subject, now)
            else:
                return self.decisions

    def arrive(self, queries, now):
        self.act(self.binding.arrived(queries, now), now)
        if self.draw.random() < 0.01:
            self.act(self.binding.withdrawn(queries[0], now), now)

    def offer(self, device, now):
        self.act(self.binding.offered({device: offered(self.kinds[device], "fair")}, now), now)

    def load(self, device, now):
        self.free_at[device] = max(self.free_at[device], now) + 0.4
        self.act(self.binding.device_changed(device, now, busy_until=now + 0.4), now)
        self.at(now + 0.4, self.loaded, device)

    def loaded(self, device, now):
        self.act(self.binding.device_changed(device, now, busy_until=now), now)

    def lose(self, device, now):
        batches, self.under_way[device] = self.under_way[device], []
        self.act(self.binding.lost(device, now), now)
        self.act(self.binding.returned([query for batch in batches for query in batch.queries], now), now)

    def restore(self, device, now):
        self.free_at[device] = now
        self.act(self.binding.device_changed(device, now, up=True), now)

    def busy(self, device, now):
        self.act(self.binding.device_changed(device, now, busy_until=now + 0.3), now)

    def end(self, ended, now):
        batch, run_s = ended
        if batch in self.under_way[batch.device_name]:
            self.under_way[batch.device_name].remove(batch)
            self.act(self.binding.finished(batch, now, run_s), now)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def act(self, decisions, now: float) -> None:
        self.wake_at = decisions.wake_at
        for batch in decisions.dispatches:
            ids = [query.id for query in batch.queries]
            self.decisions.append(f"{now!r} {batch.device_name} {batch.option.variant} {ids} {batch.end!r}")
            start = max(now + self.rtt_s / 2, self.free_at[batch.device_name])
            run_s = batch.option.seconds(batch.rows) * self.draw.lognormvariate(0.0, self.noise)
            self.free_at[batch.device_name] = start + run_s
            self.under_way[batch.device_name].append(batch)
            self.at(start + run_s + self.rtt_s / 2, self.end, (batch, run_s))
        for query in decisions.refusals:
            self.decisions.append(f"{now!r} refused {query.id}")


def digests(name: str) -> list[str]:
    decisions = Cluster(*WORLDS[name]).run()
    stretches = [decisions[i : i + STRETCH] for i in range(0, len(decisions), STRETCH)]
    return [hashlib.sha256("\n".join(stretch).encode()).hexdigest()[:12] for stretch in stretches]


@pytest.mark.parametrize("name", WORLDS)
def test_decisions_are_the_recorded_ones(name):
    recorded, now = json.loads(RECORDED.read_text())[name], digests(name)
    changed = [i for i, (before, after) in enumerate(zip(recorded, now, strict=False)) if before != after]
    assert not changed, f"the first of the decisions {changed[0] * STRETCH} to {(changed[0] + 1) * STRETCH} differs"
    assert len(now) == len(recorded)


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({name: digests(name) for name in WORLDS}, indent=0) + "\n")
