"""INFaaS-Accuracy: greedy scaling of instances, and the arrivals that ask for it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from scheduler.allocation.problem import ApplicationDemand, DeviceResources, Problem
from scheduler.simulation import simulate
from scheduler.simulation.scenario import ControlSettings
from scheduler.stacks.infaas.arrivals import HeadroomTrigger
from scheduler.stacks.strategies import get
from tests.allocation.worlds import line, problems, variant
from tests.simulation.worlds import model, world

from ..worlds import again, hosts, in_force, rates, sides

pytestmark = pytest.mark.wide

NAME = "infaas-accuracy"
#: 50 items/s at 100%, 100 at 90%, 200 at 80%
LADDER = {"good": 20.0, "fair": 10.0, "fast": 5.0}


def ladder(application: str) -> tuple:
    accuracies = zip(LADDER.items(), (100, 90, 80), strict=True)
    return tuple(variant(f"{application}-{m}", application, a, cpu=line(0, ms)) for (m, ms), a in accuracies)


def cluster(devices: int, **demand: float) -> Problem:
    return Problem(
        tuple(DeviceResources(f"d{i}", "cpu") for i in range(devices)),
        tuple(ApplicationDemand(q, 0.2, rate) for q, rate in demand.items()),
        tuple(v for q in demand for v in ladder(q)),
    )


def test_it_replicates_while_devices_are_free_and_downgrades_when_none_is():
    problem = cluster(2, a=40.0)
    first = get(NAME)(problem)
    assert sorted(hosts(first).values()) == ["a-good"]
    replicated = again(NAME, problem, first, a=90.0)
    assert sorted(hosts(replicated).values()) == ["a-good", "a-good"]
    downgraded = again(NAME, problem, replicated, a=140.0)
    assert sorted(hosts(downgraded).values()) == ["a-fair", "a-good"]
    assert again(NAME, problem, downgraded, a=500.0).left_out["a"] == pytest.approx(100.0)


def test_it_upgrades_and_releases_when_demand_falls():
    problem = cluster(2, a=300.0)
    busy = get(NAME)(problem)
    assert busy.accuracy < 90 and len(hosts(busy)) == 2
    assert list(hosts(again(NAME, problem, busy, a=10.0)).values()) == ["a-good"]


def test_no_application_gives_a_device_that_it_uses_to_another():
    problem = cluster(2, a=90.0, b=0.0)
    alone = get(NAME)(problem)
    assert list(sides(problem, alone).values()) == ["a", "a"]
    stuck = again(NAME, problem, alone, b=10.0)
    assert stuck.left_out == {"a": 0.0, "b": 10.0}
    # The MILP moves a to one device.
    assert get("proteus")(in_force(problem, alone, b=10.0)).left_out == {"a": 0.0, "b": 0.0}


def test_the_most_accurate_instances_are_filled_first():
    problem = cluster(2, a=140.0)
    found = {p.variant: p.rate for p in get(NAME)(problem).placements}
    assert found == pytest.approx({"a-good": 50.0, "a-fair": 90.0})


@given(problem=problems())
def test_a_second_look_at_the_same_demand_changes_nothing(problem):
    first = get(NAME)(problem)
    following = in_force(problem, first)
    second = get(NAME)(following)
    assert hosts(second) == hosts(first) and rates(second) == pytest.approx(rates(first))
    assert second.moves == 0


class TestTrigger:
    def trigger(self, demand: float = 40.0) -> HeadroomTrigger:
        problem = cluster(1, a=demand)
        made = HeadroomTrigger()
        made.planned(problem, get(NAME)(problem))
        return made

    def test_it_asks_when_the_headroom_is_used_up(self):
        trigger = self.trigger()
        # 47 arrivals within a second, with 5% slack, are the last that 50 items/s suffice for.
        assert [trigger.on_arrival("a", i * 0.01) for i in range(47)] == [None] * 47
        assert trigger.on_arrival("a", 0.47) == {"a": 48.0}

    def test_arrivals_older_than_its_window_do_not_count(self):
        trigger = self.trigger()
        assert not any(trigger.on_arrival("a", i / 46) for i in range(460))

    def test_it_asks_again_only_for_more_or_later(self):
        trigger = self.trigger()
        asked = [i for i in range(100) if trigger.on_arrival("a", i * 0.001)]
        loads = [i + 1 for i in asked]
        assert loads[0] == 48
        assert all(b > a * 1.05 for a, b in pairwise(loads))
        later = [i for i in range(60) if trigger.on_arrival("a", 2.0 + i * 0.001)]
        assert later[0] == 47

    def test_what_has_no_instance_is_asked_for_at_its_first_query(self):
        trigger = self.trigger()
        assert trigger.on_arrival("b", 0.0) == {"b": 1.0}


def test_in_simulation_it_scales_at_the_arrival_that_uses_up_the_headroom():
    models = [model("a", "good", 100, cpu={1: 20, 2: 40, 4: 80}), model("a", "fast", 80, cpu={1: 2, 2: 4, 4: 8})]
    # 20 queries/s, and 200 from 2.3 s on; the control loop looks every 100 s.
    arrivals = [(50.0 * i, "a") for i in range(46)] + [(2300 + 5.0 * i, "a") for i in range(200)]
    scenario = world(models, arrivals, control=ControlSettings(period_s=100, burst_check_s=100, initial_qps=20))
    greedy, static = simulate(scenario, NAME), simulate(scenario, "clipper-ha")
    times = [planned.at for planned in greedy.record.plans]
    assert len(times) > 1 and 2.3 < times[1] < 2.5
    assert [planned.at for planned in static.record.plans] == [0.0]
    assert greedy.summary["violation_ratio"] < static.summary["violation_ratio"]
    assert greedy.record.variants[greedy.record.variant[-1]][1] == "fast"
