"""Variants chosen for a fixed placement, and Proteus without one of its parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given

from scheduler.allocation.problem import ApplicationDemand, DeviceResources, LatencyProfile, Problem
from scheduler.stacks.proteus import strategy as proteus
from scheduler.stacks.proteus.ablations import uniform
from scheduler.stacks.strategies import get
from tests.allocation.worlds import line, problems, variant
from tests.examples import examples

from ..worlds import again, hosts, in_force, rates, small

pytestmark = pytest.mark.wide

#: one application on two slow devices (50 items/s at 100%, 100 at 80%) and a quick one (200 and 400)
ONE = Problem(
    (DeviceResources("s0", "slow"), DeviceResources("s1", "slow"), DeviceResources("q", "quick")),
    (ApplicationDemand("a", 0.2, 10.0),),
    (
        variant("fast", "a", 80, slow=line(0, 10), quick=line(0, 2.5)),
        variant("good", "a", 100, slow=line(0, 20), quick=line(0, 5)),
    ),
)


def test_each_device_chooses_by_its_own_share():
    first = get("sommelier")(ONE)
    assert hosts(first) == {"s0": "good", "s1": "good", "q": "good"}
    # Shares are 1/6, 1/6 and 4/6, whatever runs.
    assert rates(first) == pytest.approx({"s0": 10 / 6, "s1": 10 / 6, "q": 40 / 6})
    assert hosts(again("sommelier", ONE, first, a=300.0)) == {"s0": "good", "s1": "good", "q": "good"}
    beyond = again("sommelier", ONE, first, a=301.0)
    assert hosts(beyond) == {"s0": "fast", "s1": "fast", "q": "fast"}
    assert hosts(again("sommelier", ONE, beyond, a=10.0)) == hosts(first)


def test_the_milp_chooses_for_all_devices_of_an_application_together():
    first = get("proteus-wo-mp")(ONE)
    # 350 items/s: one slow device may stay accurate besides, which no device can decide alone.
    together = again("proteus-wo-mp", ONE, first, a=500.0)
    alone = again("sommelier", ONE, first, a=500.0)
    assert together.accuracy > alone.accuracy
    assert sorted(hosts(together).values()) == ["fast", "good", "good"]
    assert together.left_out == alone.left_out == {"a": 0.0}


@given(problem=problems(devices=4, applications=3))
def test_on_one_placement_choosing_together_serves_no_less_than_device_by_device(problem):
    placed = get("sommelier")(problem)
    following = in_force(problem, placed)
    alone, together = get("sommelier")(following), get("proteus-wo-mp")(following)
    for application in problem.applications:
        assert together.served[application.id] >= alone.served[application.id] * (1 - 1e-5) - 1e-9


def test_a_device_without_work_keeps_its_side():
    problem = small()
    first = get("proteus-wo-mp")(problem)
    idle = again("proteus-wo-mp", problem, first, a=0.0, b=0.0)
    assert hosts(idle).keys() == hosts(first).keys() and not any(rates(idle).values())


def test_without_model_selection_accuracy_never_gives_way():
    problem = small(1000.0, 10.0)
    allocation = get("proteus-wo-ms")(problem)
    assert set(hosts(allocation).values()) <= {"a3", "b2"}
    assert allocation.accuracy == pytest.approx(100)
    assert allocation.left_out["a"] > 0
    assert get("proteus")(problem).left_out["a"] < allocation.left_out["a"]


def test_without_adaptive_batching_capacity_is_that_of_single_rows():
    # A row alone takes 10 ms, eight together 45 ms: 100 items/s instead of 178.
    problem = Problem(
        (DeviceResources("d", "cpu"),), (ApplicationDemand("a", 0.2, 150.0),), (variant("m", "a", 100, cpu=line(5, 5)),)
    )
    allocation = get("proteus-wo-ab")(problem)
    (placement,) = allocation.placements
    assert placement.max_batch == 1
    assert allocation.served["a"] == pytest.approx(100.0)
    assert get("proteus")(problem).left_out == {"a": 0.0}


def test_a_model_profiled_for_large_batches_only_takes_as_long_for_one_row():
    profile = LatencyProfile(((4, 0.05), (8, 0.06)))
    problem = Problem(
        (DeviceResources("d", "cpu"),), (ApplicationDemand("a", 0.2, 150.0),), (variant("m", "a", 100, cpu=profile),)
    )
    assert get("proteus-wo-ab")(problem).served["a"] == pytest.approx(20.0)


@examples(10)
@given(problem=problems(devices=4, applications=3))
def test_without_query_assignment_the_placement_is_the_optimal_one(problem):
    problem = replace(problem, time_limit_s=60.0)
    assert get("proteus-wo-qa")(problem).placements == proteus.solve(problem).placements


def test_without_query_assignment_each_planned_device_gets_as_many_whatever_its_share():
    def played(seed: int) -> list[str]:
        router = uniform(seed)
        router.set_routes({"q": [("u", 0.05), ("v", 2.5), ("w", 1.0), ("x", 0.0)]})
        return [router.pick("q", 1, "uvwx", 1.0, lambda device: 0.1, lambda device: 0) for _ in range(3000)]

    got = Counter(played(1))
    # Three standard deviations of a third of 3000.
    assert got.keys() == {"u", "v", "w"} and all(abs(count - 1000) < 78 for count in got.values())
    assert played(1) != played(2)
