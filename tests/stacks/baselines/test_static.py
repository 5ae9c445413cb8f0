"""Placements that are made once: which they are, and that they stay."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.allocation.problem import ApplicationDemand, DeviceResources
from scheduler.allocation.verification import violations
from scheduler.stacks.dedicated import DedicatedChoices
from scheduler.stacks.placed_once import first_placement
from scheduler.stacks.strategies import get
from tests.allocation.worlds import line, problems, variant
from tests.examples import examples

from ..worlds import DEVICES, VARIANTS, again, hosts, in_force, rates, sides, small

pytestmark = pytest.mark.wide

CLIPPER = ("clipper-ht", "clipper-ha")
PLACED_ONCE = (*CLIPPER, "sommelier", "proteus-wo-mp")
demands = st.one_of(st.just(0.0), st.floats(0, 500))


def test_high_throughput_takes_the_least_accurate_variants_and_high_accuracy_the_most_accurate_that_run_in_time():
    assert set(hosts(get("clipper-ht")(small())).values()) == {"a1", "b1"}
    assert set(hosts(get("clipper-ha")(small())).values()) == {"a3", "b2"}
    # Without the quick device nothing runs a3 within half of the SLO.
    slow = replace(small(), devices=DEVICES[:3])
    assert set(hosts(get("clipper-ha")(slow)).values()) == {"a2", "b2"}


def test_an_excluded_variant_is_not_placed():
    variants = tuple(replace(v, excluded=v.id in ("a1", "b2")) for v in VARIANTS)
    problem = small(variants=variants)
    assert set(hosts(get("clipper-ht")(problem)).values()) == {"a2", "b1"}


@given(st.integers(0, 2), st.integers(0, 3), st.floats(1, 100), st.floats(1, 100), st.sampled_from([2.0, 7.0, 30.0]))
def test_the_first_placement_has_the_largest_multiple_of_the_mix_that_the_cluster_can_serve(slow, quick, a, b, ms):
    devices = tuple(DeviceResources(f"{t}{i}", t) for t, n in (("slow", slow), ("quick", quick)) for i in range(n))
    variants = (*VARIANTS[:4], variant("b2", "b", 100, slow=line(0, 50), quick=line(0, ms)))
    problem = small(a, b, devices=devices, variants=variants)
    choices = DedicatedChoices(problem)

    def multiple(residents) -> float:
        able = dict.fromkeys("ab", 0.0)
        for resident in residents:
            able[resident.variant.application] += resident.capacity
        return min(able["a"] / a, able["b"] / b)

    placed = first_placement(problem, choices)
    assert placed.keys() == {d.id for d in devices}
    every = itertools.product(*([choices.fastest(d, q) for q in "ab"] for d in devices))
    best = max((multiple(residents) for residents in every), default=0.0)
    assert multiple(placed.values()) >= best * (1 - 2e-3)


def test_the_mix_counts_and_not_the_level_of_the_first_demand():
    for name in PLACED_ONCE:
        few, many = get(name)(small(1.0, 2.0)), get(name)(small(100.0, 200.0))
        assert sides(small(), few) == sides(small(), many)


@pytest.mark.parametrize("name", PLACED_ONCE)
def test_everybody_gets_a_place_however_little_is_asked_for(name):
    for a, b in ((0.0, 0.0), (0.0, 500.0), (5e-324, 500.0), (5e-324, 0.0), (1e-7, 1e4)):
        problem = small(a, b)
        allocation = get(name)(problem)
        assert set(sides(problem, allocation).values()) == {"a", "b"} and len(hosts(allocation)) == 4
        assert violations(problem, allocation) == []


def test_where_not_all_applications_find_a_device_the_most_weighted_items_do():
    one = small(30.0, 10.0, devices=(DeviceResources("s", "slow"),))
    assert sides(one, get("clipper-ht")(one)) == {"s": "a"}
    heavy = replace(one, applications=(one.applications[0], replace(one.applications[1], weight=9.0)))
    assert sides(one, get("clipper-ht")(heavy)) == {"s": "b"}


@pytest.mark.parametrize("name", PLACED_ONCE)
@examples(10)
@given(data=st.data(), problem=problems(devices=4, applications=3))
def test_no_demand_moves_what_was_placed_once(name, data, problem):
    allocation = get(name)(problem)
    first = hosts(allocation) if name in CLIPPER else sides(problem, allocation)
    for _ in range(2):
        demand = {a.id: data.draw(demands) for a in problem.applications}
        following = in_force(problem, allocation, **demand)
        allocation = get(name)(following)
        assert violations(following, allocation) == []
        assert (hosts(allocation) if name in CLIPPER else sides(problem, allocation)) == first
        assert allocation.moves == 0 or name not in CLIPPER


def test_rates_follow_the_demand_in_constant_proportions_up_to_the_capacity():
    problem = small()
    allocation = get("clipper-ht")(problem)
    before = rates(allocation)
    doubled = rates(again("clipper-ht", problem, allocation, a=20.0, b=20.0))
    assert doubled == pytest.approx({device: 2 * rate for device, rate in before.items()})
    swamped = again("clipper-ht", problem, allocation, a=9000.0)
    capacity = sum({"slow": 100.0, "quick": 400.0}[d.type] for d in DEVICES if hosts(allocation)[d.id] == "a1")
    assert swamped.served["a"] == pytest.approx(capacity)
    assert swamped.left_out["a"] == pytest.approx(9000.0 - capacity)
    assert any("a: " in s and "left out" in s and "does not follow the demand" in s for s in swamped.reasons)


@pytest.mark.parametrize("name", PLACED_ONCE)
@pytest.mark.parametrize(
    "change",
    [
        {"devices": (*DEVICES, DeviceResources("q2", "quick"))},
        {"devices": DEVICES[1:]},
        {
            "applications": (*small().applications, ApplicationDemand("c", 0.2, 1.0)),
            "variants": (*VARIANTS, variant("c1", "c", 100, slow=line(0, 10))),
        },
        {"variants": tuple(v for v in VARIANTS if v.id not in ("a1", "b2"))},
    ],
    ids=["a new device", "a lost device", "a new application", "lost variants"],
)
def test_another_cluster_is_placed_anew_with_the_demand_of_then(name, change):
    problem = small(10.0, 10.0)
    following = replace(in_force(problem, get(name)(problem), a=5.0, b=400.0), **change)
    fresh = replace(following, previous=None)
    assert sides(following, get(name)(following)) == sides(fresh, get(name)(fresh))
    assert violations(following, get(name)(following)) == []


def test_what_another_strategy_left_loaded_is_used_where_it_fits():
    problem = small()
    loaded = tuple(replace(d, loaded=frozenset({"a1"} if d.id == "s2" else {"b1"})) for d in DEVICES)
    counts = [v for d, v in hosts(get("clipper-ht")(problem)).items() if d != "q"]
    allocation = get("clipper-ht")(replace(problem, devices=loaded))
    if "a1" in counts:
        assert hosts(allocation)["s2"] == "a1"
    assert allocation.moves == 4 - sum(hosts(allocation)[d.id] in d.loaded for d in loaded)
    assert allocation.moves < 4
