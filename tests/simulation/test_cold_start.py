"""The least that any rule loses while nothing is loaded yet."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from scheduler.simulation import simulate
from scheduler.simulation.cold_start import cold_bound

from .worlds import model, world

ONE, TWO, THREE = (model(name, "m", cpu={1: 10, 4: 20}) for name in ("one", "two", "three"))


def steady(name: str, every_ms: float, until_ms: float = 4000) -> list[tuple[float, str]]:
    return [(ms, name) for ms in range(0, int(until_ms), int(every_ms))]


def test_what_arrives_more_than_its_slo_before_the_first_load_ends_is_lost():
    # A load of 1 s and an SLO of 300 ms: the queries of 0, 100 … 600 ms of forty.
    assert cold_bound(world([ONE], steady("one", 100), load_time_s=1.0)) == pytest.approx(7 / 40)


def test_with_fewer_devices_than_applications_the_busiest_come_first():
    arrivals = [*steady("one", 100), *steady("two", 50), *steady("three", 500)]
    three = [ONE, TWO, THREE]
    # Two devices: "one" and "two" within 1 s (7 and 14 queries), "three" within 2 s (4).
    found = cold_bound(world(three, arrivals, ["cpu"] * 2, load_time_s=1.0))
    assert found == pytest.approx((7 + 14 + 4) / len(arrivals))
    # One device: "two", "one", "three" after 1, 2 and 3 s.
    found = cold_bound(world(three, arrivals, load_time_s=1.0))
    assert found == pytest.approx((14 + 17 + 6) / len(arrivals))


def test_an_application_waits_for_its_own_quickest_variant():
    arrivals = [*steady("one", 100), *steady("two", 100)]
    slow = replace(ONE, load_s=2.0)
    found = cold_bound(world([slow, TWO], arrivals, ["cpu"] * 2, load_time_s=1.0))
    assert found == pytest.approx((17 + 7) / len(arrivals))


def test_nothing_is_lost_where_loads_take_no_time_or_nothing_arrives():
    assert cold_bound(world([ONE], steady("one", 100))) == 0.0
    assert cold_bound(world([ONE], steady("one", 100), load_time_s=0.2)) == 0.0
    assert cold_bound(world([ONE], [], load_time_s=5.0)) == 0.0


@pytest.mark.parametrize("stack", ["nereus", "proteus"])
@pytest.mark.parametrize("seed", range(3))
def test_no_run_loses_less(stack, seed):
    numbers = random.Random(seed)
    names = ("one", "two", "three")
    arrivals = [(numbers.uniform(0, 3000), numbers.choice(names)) for _ in range(300)]
    devices = ["cpu"] * numbers.randint(1, 4)
    scenario = world([ONE, TWO, THREE], arrivals, devices, load_time_s=numbers.uniform(0.2, 1.5))
    s = simulate(scenario, stack).summary
    assert s["violation_ratio"] >= s["cold_bound"] > 0
