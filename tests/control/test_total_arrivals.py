"""Gateways that share the demand report the same bursts as one that sees it all.

That holds however unevenly they share it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from scheduler.control.bursts import LINGERS_S, TotalArrivals
from tests.examples import examples
from workers.gateway.bursts import SLOT_S, BurstDetector
from workers.protocol import control
from workers.protocol.specs import Band

#: a tick comes so long after its slot's end
AFTER_S = 0.002
START_S = 5000.0


@dataclass
class Part:
    """One of the gateways.

    Attributes:
        detector: its detector.
        ahead_s: how far its clock is ahead.
        way_s: how long its reports take.
    """

    detector: BurstDetector
    ahead_s: float
    way_s: float


class World:
    """A lone gateway that sees everything, and several that share it, under one plan."""

    def __init__(self, parts: list[tuple[float, float]], bands: dict[str, Band]):
        self.lone = BurstDetector()
        self.parts = [Part(BurstDetector(), ahead, way) for ahead, way in parts]
        self.total = TotalArrivals()
        self.slot = 0
        self.arrived: set[int] = set()
        self.expected: list[tuple[int, control.Burst]] = []
        self.found: list[tuple[int, control.Burst]] = []
        self.plan(bands, 1)
        for i in range(len(parts)):
            self.total.joined(f"g{i}", "first", START_S)

    def plan(self, bands: dict[str, Band], version: int) -> None:
        now = START_S + self.slot * SLOT_S + 0.01
        self.bands = bands
        self.lone.set_plan(bands, version, now)
        self.total.set_plan(bands, version, now)
        for part in self.parts:
            part.detector.set_plan(bands, version, now + part.ahead_s)

    def arrive(self, name: str, rows: int, part: int, within: float) -> None:
        if name in self.bands:
            self.arrived.add(self.slot)
        now = START_S + (self.slot + within) * SLOT_S
        self.lone.arrived(name, rows, now)
        known = self.parts[part]
        known.detector.arrived(name, rows, now + known.ahead_s)

    def tick(self) -> None:
        """End the slot: the lone gateway judges, and the others' reports come in.

        They come in the order of the time that they take.
        """
        self.slot += 1
        now = START_S + self.slot * SLOT_S + AFTER_S
        self.expected += [(self.slot, burst) for burst in self.lone.check(now)]
        coming = []
        for i, part in enumerate(self.parts):
            report = part.detector.report(now + part.ahead_s)
            if report is not None:
                coming.append((part.way_s, i, control.decode_from_gateway(control.encode(report))))
        for way_s, i, report in sorted(coming, key=lambda one: one[:2]):
            self.total.report(f"g{i}", "first", report, now + way_s)
            self._check(now + way_s)
        if self.slot % 10 == 0:
            self.statistics()

    def statistics(self) -> None:
        """Each gateway's statistics come once a second, whatever happens."""
        self._check(START_S + (self.slot + 0.5) * SLOT_S)

    def _check(self, now: float) -> None:
        self.found += [(self.slot, burst) for burst in self.total.check(now)]


RATES = st.lists(st.tuples(st.integers(2, 40), st.sampled_from([0, 1, 4, 12, 40])), min_size=1, max_size=6)
SHARES = st.lists(st.sampled_from([0.0, 0.01, 0.3, 1.0]), min_size=2, max_size=5).filter(any)


@examples(60, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink))
@given(
    phases=RATES,
    shares=SHARES,
    ahead=st.lists(st.integers(-40, 40), min_size=5, max_size=5),
    ways=st.lists(st.floats(0, 0.045), min_size=5, max_size=5),
    low=st.sampled_from([0.0, 30.0, 90.0]),
    high=st.sampled_from([20.0, 60.0, 120.0]),
    replan=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_any_split_reports_what_one_gateway_would(phases, shares, ahead, ways, low, high, replan, seed):
    dice = random.Random(seed)
    bands = {"a": Band(0.0 if replan else low, high), "b": Band(0.0, 200.0)}
    world = World([(n * SLOT_S, way) for n, way, _ in zip(ahead, ways, shares, strict=False)], bands)
    for number, (slots, most) in enumerate(phases):
        if replan and number == len(phases) // 2:
            # A report that is judged a tick later is judged by the plan of then: none may be under way here.
            for _ in range(20):
                world.tick()
            world.statistics()
            world.plan({"a": Band(low, high * 1.5)}, 2)
        for _ in range(slots):
            for _ in range(dice.randint(0, most)):
                (part,) = dice.choices(range(len(shares)), shares)
                world.arrive(dice.choice("aab"), dice.choice([1, 1, 3]), part, dice.uniform(0.01, 0.99))
            world.tick()
    world_end = world.slot
    for _ in range(12):
        world.tick()
    expected = [(at, burst) for at, burst in world.expected if at <= world_end]
    assert [burst for _, burst in world.found][: len(expected)] == [burst for _, burst in expected]
    for (at, _), (found_at, burst) in zip(expected, world.found, strict=False):
        # While nothing arrives anywhere that has a band, only the statistics of each second say so.
        assert 0 <= found_at - at <= (1 if world.arrived & {at - 1, at} else 10), burst


def steady(world: World, slots: int, counts: list[int]) -> None:
    """``counts``: queries at each gateway in each slot."""
    for _ in range(slots):
        for part, count in enumerate(counts):
            for i in range(count):
                world.arrive("a", 1, part, 0.05 + 0.9 * i / count)
        world.tick()


def test_no_gateway_alone_sees_the_burst_and_it_is_reported_in_three_slots():
    world = World([(0.0, 0.003)] * 3, {"a": Band(0.0, 100.0)})
    steady(world, 30, [3, 3, 2])
    assert world.found == []
    # Each of them gets less than the whole band allows, all together nearly twice that.
    steady(world, 5, [7, 6, 6])
    assert world.found == world.expected
    assert len(world.found) == 1 and world.found[0][0] <= 33


def test_the_half_that_each_gets_is_not_called_a_fall():
    world = World([(0.0, 0.003)] * 2, {"a": Band(60.0, 120.0)})
    steady(world, 250, [4, 4])
    assert world.found == world.expected == []
    steady(world, 250, [0, 1])
    assert [burst.rate < 60 for _, burst in world.found] == [True] * len(world.expected)


def test_clocks_that_agree_on_nothing_add_up_within_a_slot():
    """Slots of gateways whose clocks disagree add up within a slot.

    Slots on other boxes begin at other moments. Their sums stray by what arrives in a slot.
    """
    world = World([(0.0, 0.003), (1234.037, 0.02), (-77.71, 0.04)], {"a": Band(0.0, 100.0)})
    steady(world, 30, [3, 3, 2])
    assert world.found == []
    steady(world, 10, [7, 6, 6])
    assert world.expected[0][0] <= world.found[0][0] <= world.expected[0][0] + 2


def test_reports_that_were_held_up_are_counted_where_they_belong():
    """Reports of two seconds that come at once make no burst.

    They are one gateway's, were held up, and belong to twenty slots.
    """
    total, detector, quiet = TotalArrivals(), BurstDetector(), BurstDetector()
    bands = {"a": Band(0.0, 100.0)}
    for one in (detector, quiet, total):
        one.set_plan(bands, 1, START_S)
    total.joined("g0", "first", START_S)
    total.joined("g1", "first", START_S)
    held = []
    for slot in range(60):
        now = START_S + (slot + 0.5) * SLOT_S
        for _ in range(8):
            detector.arrived("a", 1, now)
        now = START_S + (slot + 1) * SLOT_S + AFTER_S
        report = detector.report(now)
        held.append(report)
        if not 20 <= slot < 40:
            for one in held:
                total.report("g0", "first", one, now)
            held = []
        assert total.check(now) == []


def test_a_gateway_that_comes_back_is_one_gateway_and_its_old_connection_says_nothing_more():
    total = TotalArrivals()
    total.set_plan({"a": Band(50.0, 100.0)}, 1, START_S)
    total.joined("g0", "first", START_S)
    total.joined("g1", "first", START_S)
    total.joined("g1", "second", START_S + 1)
    assert len(total) == 2
    many = control.Arrivals(slot=int((START_S + 2) / SLOT_S) - 1, applications={"a": ((500, 500),)})
    total.report("g1", "first", many, START_S + 2)
    assert total.check(START_S + 2.1) == []
    assert not total.left("g1", "first", START_S + 2.2)
    assert len(total) == 2
    assert total.left("g1", "second", START_S + 2.3)
    assert len(total) == 1
    assert not total.left("g1", "second", START_S + 2.4)


def test_after_a_gateway_has_left_nothing_is_called_low_for_ten_seconds():
    world = World([(0.0, 0.003)] * 3, {"a": Band(60.0, 200.0)})
    steady(world, 120, [5, 3, 3])
    world.total.left("g0", "first", START_S + world.slot * SLOT_S)
    steady(world, 98, [0, 3, 2])
    assert world.found == []
    steady(world, 20, [0, 3, 2])
    assert [burst.rate for _, burst in world.found] == [pytest.approx(50, abs=1)]


def test_a_lone_gateway_is_left_to_judge_for_itself():
    total = TotalArrivals()
    total.set_plan({"a": Band(50.0, 100.0)}, 1, START_S)
    total.joined("g0", "first", START_S)
    assert total.check(START_S + 60) == []


def test_a_gateway_that_is_away_for_a_moment_leaves_nobody_alone():
    total = TotalArrivals()
    total.set_plan({"a": Band(0.0, 20.0)}, 1, START_S)
    for name in ("g0", "g1"):
        total.joined(name, "first", START_S)
    total.left("g1", "first", START_S + 1)
    assert total.serving == 2 and not total.forget(START_S + 1 + LINGERS_S - 0.1)
    # The other one goes on telling its arrivals, and somebody must judge them.
    slot = int((START_S + 30) / SLOT_S) - 1
    total.report("g0", "first", control.Arrivals(slot=slot, applications={"a": ((50, 50),)}), START_S + 30.01)
    assert [burst.application for burst in total.check(START_S + 30.01)] == ["a"]
    total.joined("g1", "second", START_S + 40)
    assert total.serving == 2 and not total.forget(START_S + 40 + LINGERS_S), "it is back"
    total.left("g1", "second", START_S + 200)
    assert total.forget(START_S + 200 + LINGERS_S) and total.serving == 1, "the other one is notified, once"
    assert not total.forget(START_S + 200 + LINGERS_S) and total.check(START_S + 300) == []


def test_after_an_outage_only_those_that_come_back_count():
    total = TotalArrivals()
    for name in ("g0", "g1", "g2"):
        total.joined(name, "first", START_S)
    for name in ("g0", "g1", "g2"):
        total.left(name, "first", START_S + 10)
    total.joined("g0", "second", START_S + 11)
    assert total.serving == 3
    total.left("g0", "second", START_S + 12)
    total.joined("g1", "second", START_S + 12 + LINGERS_S)
    assert total.serving == 1


def test_what_a_lone_gateway_has_reported_is_not_reported_again_once_another_one_joins():
    total, one, other = TotalArrivals(), BurstDetector(), BurstDetector()
    for known in (total, one, other):
        known.set_plan({"a": Band(0.0, 20.0)}, 1, START_S)
    total.joined("g0", "first", START_S)
    reported = []
    for slot in range(81):
        if slot == 80:
            total.joined("g1", "first", START_S + 80.5 * SLOT_S)
        for _ in range(10 if 20 <= slot < 35 else 1):
            one.arrived("a", 1, START_S + (slot + 0.5) * SLOT_S)
        now = START_S + (slot + 1) * SLOT_S + AFTER_S
        if slot < 80:
            reported += one.check(now)
            assert total.check(now) == []
    assert reported
    # Its first report covers the last ten seconds, so that what is judged from now on has its whole window.
    total.report("g0", "first", one.report(now), now)
    assert total.check(now) == []
    for slot in range(81, 84):
        now = START_S + (slot + 1) * SLOT_S + AFTER_S
        for gateway, known in (("g0", one), ("g1", other)):
            for _ in range(5):
                known.arrived("a", 1, now - 0.5 * SLOT_S)
            total.report(gateway, "first", known.report(now), now)
        reported = total.check(now)
        if reported:
            break
    assert [burst.application for burst in reported] == ["a"], "a burst that is new is reported"


def test_an_older_plan_that_is_read_late_changes_nothing():
    total = TotalArrivals()
    total.set_plan({"a": Band(0.0, 10.0)}, 7, START_S)
    total.set_plan({"a": Band(0.0, 1e6)}, 6, START_S)
    for name in ("g0", "g1"):
        total.joined(name, "first", START_S)
    slot = int((START_S + 1) / SLOT_S) - 1
    for name in ("g0", "g1"):
        total.report(name, "first", control.Arrivals(slot=slot, applications={"a": ((9, 9),)}), START_S + 1.01)
    assert [(burst.rate, burst.plan_version) for burst in total.check(START_S + 1.01)] == [(18.0, 7)]


@pytest.mark.parametrize(
    "wrong",
    [
        '{"type": "arrivals", "v": 1, "slot": -1, "applications": {}}',
        '{"type": "arrivals", "v": 1, "slot": 1, "applications": {"a": []}}',
        '{"type": "arrivals", "v": 1, "slot": 1, "applications": {"a": [[1, -1]]}}',
        '{"type": "arrivals", "v": 1, "slot": 1, "applications": {"a": [[1]]}}',
        '{"type": "arrivals", "v": 1, "slot": 1, "applications": {"a": %s}}' % ([[1, 1]] * 101),
    ],
)
def test_counts_that_cannot_be_are_no_message(wrong):
    with pytest.raises(msgspec.ValidationError):
        control.decode_from_gateway(wrong)
