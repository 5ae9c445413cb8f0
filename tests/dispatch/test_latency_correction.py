"""Corrections that one option's run times lead to: its own, and its device's."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.dispatch.feedback import DECAY_AFTER_S, decay_corrections, learn
from workers.dispatch.late.device_groups import DeviceGroups
from workers.dispatch.late.state import ScheduledDevice
from workers.dispatch.latency_correction import SLOW, LearnedLatencies
from workers.dispatch.options import ServingOption

from .driver import ANSWERED, REFUSED, World, menu, option

#: a good variant of 20 ms and a quick one to fall back to
FAIR = menu(option("good", 100, {1: 0.02}), option("quick", 80, {1: 0.005}))


class Shared(World):
    """One device with two applications, of which one does not keep to its profile.

    The times of ``fair`` are as its profile says. Those of ``other`` are ``least_s`` and more, exponentially
    distributed with mean ``more_s``.
    """

    def __init__(self, profile_s: float, least_s: float, more_s: float):
        self._least_s, self._more_s = least_s, more_s
        self._draw, self._ratio = random.Random(2), 1.0
        option_sets = {"fair": FAIR, "other": menu(option("other", 100, {1: profile_s}))}
        super().__init__({"fair": 0.06, "other": 0.5}, {"cpu": option_sets}, slowness=lambda _: self._ratio)

    def _dispatched(self, batch):
        self._ratio = self._draw.gauss(1.0, 0.01)
        if batch.application_name == "other":
            seconds = self._least_s + self._more_s * self._draw.expovariate(1.0)
            self._ratio = seconds / batch.option.seconds(1)
        super()._dispatched(batch)


def suffered(profile_s: float, least_s: float, more_s: float, share: float, load: float) -> tuple[float, float]:
    """Return how the fair application's queries fare, at Poisson arrivals.

    Args:
        share: the fair application's part of all queries.

    Returns:
        The parts of its queries that were not answered in time, and that the quick variant answered.
    """
    world, draw, done = Shared(profile_s, least_s, more_s), random.Random(1), []
    rate = load / (share * 0.02 + (1 - share) * (least_s + more_s))
    for _ in range(int(500 / share)):
        world.advance(draw.expovariate(rate))
        world.submit("fair" if draw.random() < share else "other")
        if len(world.queries) >= 100:
            # All are looked at after each call, which would take ever longer.
            done += [query for query in world.queries if query.state in (ANSWERED, REFUSED)]
            world.queries = [query for query in world.queries if query.state not in (ANSWERED, REFUSED)]
    world.finish()
    fair = [query for query in done + world.queries if query.application == "fair"][100:]
    bad = sum(query.state == REFUSED or query.answered > query.due for query in fair)
    return bad / len(fair), sum(query.variant == "quick" for query in fair) / len(fair)


#: (seconds by the profile, seconds that it takes at least, and more, exponentially distributed), and the part of the
#: queries that is the fair application's
WRONG = {
    "half as much again": (0.01, 0.015, 0.0, 0.7),
    "twice as much": (0.01, 0.02, 0.0, 0.7),
    "waver by their own length": (0.0003, 0.0003, 0.0003, 0.25),
    "depend on sizes that no profile knows": (0.002, 0.002, 0.008, 0.5),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("load", [0.3, 0.5])
def test_an_application_whose_times_are_right_hardly_notices_that_those_of_another_are_wrong(wrong, load):
    profile_s, least_s, more_s, share = WRONG[wrong]
    bad, quick = suffered(profile_s, least_s, more_s, share, load)
    _, quick_where_known = suffered(least_s + more_s, least_s, more_s, share, load)
    assert bad < 0.01
    assert quick < quick_where_known + 0.05


@pytest.mark.parametrize("load", [0.3, 0.5])
def test_an_application_beside_another_is_served_alike_where_both_are_right(load):
    bad, quick = suffered(0.01, 0.01, 0.0, 0.7, load)
    assert bad < 0.01 and quick < 0.12


# --- a device alone ---------------------------------------------------------------------------------------------------

#: a run of each every so many seconds
EVERY_S = 0.03


class Bench:
    """A device that runs options, named as their applications, one after the other.

    Attributes:
        slow: how slow the device is.
        bias: how wrong the profiles are, by application.
    """

    def __init__(self, seconds: dict[str, float], bias: dict[str, float] | None = None, noise=0.02):
        self.groups = DeviceGroups()
        self.device: ScheduledDevice = self.groups.device("d")
        self.now, self.slow, self.noise = 0.0, 1.0, noise
        self.bias = bias or {}
        self._draw = random.Random(1)
        self.groups.offer(self.device, {name: menu(option(name, 90, {1: s})) for name, s in seconds.items()})

    def option(self, name: str) -> ServingOption:
        return self.device.option_sets[name].options[0]

    def run(self, *names: str) -> None:
        for name in names:
            self.now += EVERY_S
            ratio = self.slow * self.bias.get(name, 1.0) * self._draw.gauss(1.0, self.noise)
            learn(self.device, self.option(name), 1, self.option(name).seconds(1) * ratio, self.now)

    def factor(self, name: str) -> float:
        return self.device.corrections[self.option(name)]


@pytest.mark.parametrize("others", ["a", "b", "ab"])
def test_a_device_that_gets_slow_is_slow_for_what_it_has_not_just_run_too(others):
    bench = Bench({"a": 0.02, "b": 0.01, "idle": 0.02, "never": 0.02})
    bench.run(*["a", "b", "idle"] * 100)
    assert all(bench.factor(name) < 1.15 for name in ("a", "b", "idle", "never"))
    bench.now += 1.0
    bench.slow = 2.0
    bench.run(*(others * 20)[:20])
    assert all(bench.factor(name) > 1.9 for name in (*others, "idle", "never"))
    bench.run(*(others * 40)[:40])
    bench.slow = 1.0
    bench.run(*(others * 20)[:20])
    assert all(bench.factor(name) < SLOW for name in (*others, "idle", "never"))


def test_what_is_biased_shows_as_well_that_its_device_gets_slow():
    bench = Bench({"a": 0.02, "b": 0.01, "idle": 0.02}, bias={"b": 1.5})
    bench.run(*["a", "b", "idle"] * 100)
    assert bench.factor("idle") < 1.15 and 1.45 < bench.factor("b") < 1.75
    bench.slow = 2.0
    bench.run(*"ab" * 20)
    assert bench.factor("idle") > 1.9 and bench.factor("b") > 2.9


def test_who_gets_slow_alone_is_slow_alone():
    bench = Bench({"a": 0.02, "b": 0.01, "idle": 0.02})
    bench.run(*["a", "b", "idle"] * 100)
    bench.bias["b"] = 2.0
    for _ in range(60):
        bench.run("a", "b")
        assert bench.factor("a") < 1.15 and bench.factor("idle") < 1.15
    assert bench.factor("b") > 1.95


def test_what_never_ran_is_counted_on_as_what_did():
    bench = Bench({"a": 0.02, "never": 0.02})
    bench.slow = 2.0
    bench.run(*"a" * 60)
    assert bench.factor("never") == pytest.approx(bench.factor("a"), rel=0.25)
    bench.slow = 1.0
    bench.run(*"a" * 60)
    assert bench.factor("never") < 1.15


def test_runs_that_are_over_at_once_say_nothing_about_long_ones():
    bench = Bench({"tiny": 0.0003, "long": 0.02}, noise=0.0)
    bench.run(*["tiny", "long"] * 50)
    draw = random.Random(5)
    for _ in range(500):
        bench.slow = 1.0 + draw.expovariate(1.0)
        bench.run("tiny")
    assert bench.factor("tiny") > 3.0
    assert bench.factor("long") < 1.3


def test_an_option_that_is_too_slow_to_be_used_is_tried_again_though_others_run():
    bench = Bench({"a": 0.02, "b": 0.01})
    bench.bias["b"] = 5.0
    bench.run(*"ab" * 100)
    assert bench.factor("b") > 4.0
    while bench.now < 1000.0 and bench.factor("b") > 1.3:
        bench.run("a")
        decay_corrections(bench.device, bench.now)
    assert DECAY_AFTER_S < bench.now < 10 * DECAY_AFTER_S
    assert bench.factor("a") < 1.15


def test_what_a_device_offers_no_more_is_forgotten():
    groups = DeviceGroups()
    device = groups.device("d")
    for i in range(50):
        offered = menu(option(f"v{i}", 90, {1: 0.01}), option(f"w{i}", 80, {1: 0.005}))
        groups.offer(device, {"q": offered})
        for known in (*device.option_sets["q"].options, option("elsewhere", 90, {1: 0.01})):
            learn(device, known, 1, 0.02, float(i))
        assert len(device.corrections._estimators) <= 3
    groups.offer(device, {})
    assert not device.corrections._estimators


def test_a_variant_keeps_what_was_learnt_of_it_while_other_options_come_and_go():
    groups = DeviceGroups()
    device = groups.device("d")
    kept = option("kept", 90, {1: 0.01})
    groups.offer(device, {"q": menu(kept)})
    for i in range(100):
        learn(device, kept, 1, 0.02, float(i))
    before = device.corrections[kept]
    groups.offer(device, {"q": menu(option("kept", 90, {1: 0.01}), option("new", 80, {1: 0.001}))})
    assert device.corrections[device.option_sets["q"].options[0]] == before > 1.9


def test_the_next_core_begins_with_what_the_last_one_learnt_of_the_device():
    last = Bench({"a": 0.02, "b": 0.01, "never": 0.02}, bias={"b": 1.5})
    last.slow = 1.4
    last.run(*["a", "b"] * 100)
    heir = Bench({"a": 0.02, "b": 0.01, "never": 0.02}, bias={"b": 1.5})
    assert heir.device.corrections.inherit(last.device.corrections.learned())
    for name in ("a", "b", "never"):
        assert heir.factor(name) == pytest.approx(last.factor(name), rel=0.1)
    assert heir.factor("b") > heir.factor("a") + 0.3
    # From there on it learns by itself, and receives nothing more.
    heir.run(*["a", "b"] * 40)
    assert not heir.device.corrections.inherit(last.device.corrections.learned())
    assert heir.factor("a") < last.factor("a") - 0.2


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, 0.0])
def test_what_is_no_ratio_is_not_inherited(wrong):
    corrections = Bench({"a": 0.02}).device.corrections
    assert not corrections.inherit(LearnedLatencies((wrong, 0.1), (1.0, 0.0), {}))
    assert not corrections.inherit(LearnedLatencies((1.0, 0.1), (1.0, 0.0), {"a": (wrong, 0.1)}))


runs = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([0.0, 1e-9, 0.5, 1.0, 1.0, 1.0, 1.3, 8.0, 1e9]),
        st.sampled_from([0.0, 0.001, 0.4, 30.0]),
        st.sampled_from([1, 1, 40, 900]),
    ),
    max_size=40,
)


@given(runs=runs)
def test_whatever_runs_take_factors_are_numbers_not_below_one(runs):
    groups, now = DeviceGroups(), 0.0
    device = groups.device("d")
    groups.offer(device, {n: menu(option(n, 90, {1: s})) for n, s in (("a", 0.02), ("b", 0.0001), ("c", 0.006))})
    for name, ratio, pause_s, times in runs:
        known = device.option_sets[name].options[0]
        for _ in range(times):
            now += pause_s
            learn(device, known, 1, known.seconds(1) * ratio, now)
        decay_corrections(device, now)
        heir = Bench({"a": 0.02, "b": 0.0001, "c": 0.006})
        learned = device.corrections.learned()
        assert heir.device.corrections.inherit(learned)
        for other in device.option_sets.values():
            assert 1.0 <= device.corrections[other.options[0]] < math.inf
            assert 1.0 <= heir.device.corrections[other.options[0]] < math.inf
