"""Recorded runs of late binding replay bit for bit.

Each run calls the binding as a cluster would. Of its decisions a digest is kept for every :data:`STRETCH` of them, in
``replay.json``, so that a change shows, and where. A change of behaviour records anew:

    python -m tests.dispatch.test_replay
"""

from __future__ import annotations

import hashlib
import json
import random
from operator import itemgetter
from pathlib import Path

import pytest

from workers.dispatch.binding import QueryClass

from .driver import World, menu, option

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


class Recorded(World):
    """A world whose decisions are recorded and not checked: there are thousands of queries."""

    def __init__(self, devices: dict[str, int], rate: float, rtt_s: float, noise: float):
        self.draw = draw = random.Random(f"{devices} {rate}")
        self.kinds = {f"{kind}{i}": kind for kind, count in devices.items() for i in range(count)}
        options = {name: offered(kind) for name, kind in self.kinds.items()}
        super().__init__(SLOS, options, rtt_s, lambda _device: draw.lognormvariate(0.0, noise), exact=False)
        first, last = next(iter(self.kinds)), list(self.kinds)[-1]
        self.events = [
            (1.5, lambda: self.offer(first, offered(self.kinds[first], "fair"))),
            (2.0, lambda: self.busy(last, 0.4)),
            (2.4, lambda: self.back(last)),
            (3.0, lambda: self.lose(last)),
            (3.5, lambda: self.set_up(last, True)),
            (4.0, lambda: self.busy(first, 0.3)),
        ]
        at = 0.0
        while (at := at + draw.expovariate(rate)) < SECONDS:
            self.events.append((at, self.arrive))

    def _check(self, refused) -> None:
        pass

    def arrive(self) -> None:
        queries = self.submit_together([self.asked() for _ in range(1 if self.draw.random() < 0.9 else 5)])
        if self.draw.random() < 0.01:
            self.withdraw(queries[0])

    def asked(self) -> tuple:
        name = self.draw.choice("aaabbc")
        budget_s = SLOS[name][0] * self.draw.choice([1.0, 1.0, 1.0, 0.6])
        permitted = frozenset([f"{name}-rough", f"{name}-fair"]) if self.draw.random() < 0.03 else None
        return QueryClass(name, 0, permitted), self.draw.choice([1, 1, 1, 1, 2]), budget_s, None

    def run(self) -> list[str]:
        for when, act in sorted(self.events, key=itemgetter(0)):
            self.until(when)
            act()
        self.finish()
        return [repr(decision) for decision in self.decisions]


def digests(name: str) -> list[str]:
    decisions = Recorded(*WORLDS[name]).run()
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
