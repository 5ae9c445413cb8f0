"""Plans of the stacks with policies: who serves whom, what is resident, and how the simulator serves by them."""

from __future__ import annotations

from contextvars import copy_context
from dataclasses import replace

import pytest

from scheduler import progress
from scheduler.allocation.problem import ApplicationDemand, CandidateVariant, DeviceResources, LatencyProfile, Problem
from scheduler.allocation.verification import violations
from scheduler.simulation import simulate
from scheduler.simulation.scenario import ControlSettings
from scheduler.stacks import strategies
from scheduler.stacks.ramsis import load_policies
from scheduler.stacks.ramsis import strategy as by_policy
from tests.simulation.worlds import model, world

pytestmark = pytest.mark.wide

MB = 1_000_000
TIMES = {"fast": (60.0, 4), "middle": (75.0, 9), "good": (90.0, 18), "best": (100.0, 30)}


def variants(application: str) -> list[CandidateVariant]:
    profile = {
        name: LatencyProfile(tuple((rows, ms * (1 + rows) / 2e3) for rows in (1, 2, 4, 8)), memory_bytes=10 * MB)
        for name, (_, ms) in TIMES.items()
    }
    return [
        CandidateVariant(f"{application}-{name}", application, accuracy, {"cpu": profile[name]})
        for name, (accuracy, _) in TIMES.items()
    ]


def problem(devices: int = 4, demands=(("a", 200.0), ("b", 50.0)), **changes) -> Problem:
    return Problem(
        tuple(DeviceResources(f"d{i}", "cpu", **changes) for i in range(devices)),
        tuple(ApplicationDemand(name, 0.1, demand) for name, demand in demands),
        tuple(variant for name, _ in demands for variant in variants(name)),
    )


@pytest.fixture
def few_loads(monkeypatch):
    """Plans with few policies, which are made sooner."""
    monkeypatch.setattr(load_policies, "NEAREST", 1.3)


@pytest.mark.parametrize("name", by_policy.STRATEGIES)
def test_each_device_serves_one_application_by_policies_for_its_demand(name, few_loads):
    asked = problem()
    plan = strategies.get(name)(asked)
    assert not violations(asked, plan)
    assert sum(plan.served.values()) == pytest.approx(250)
    hosts = {p.device: p.variant.split("-")[0] for p in plan.placements}
    assert sorted(hosts.values()) == ["a", "a", "a", "b"]
    for planned in plan.policies:
        assert {hosts[device] for device in planned.devices} == {planned.application}
        loads = [policy.load for policy in planned.policies]
        assert loads == sorted(loads) and any(load >= asked.applications[0].demand / 4 for load in loads)
        assert [variant.split("-")[1] for variant in planned.variants] == list(TIMES)
    assert 60 < plan.accuracy <= 100


@pytest.mark.parametrize("name", ["ramsis", "modelswitching"])
def test_a_plan_that_runs_out_of_time_has_a_policy_for_each_device_and_the_next_has_the_others(name):
    asked = replace(problem(demands=(("a", 190.0), ("b", 45.0))), milp_s=1.0)
    short = strategies.get(name)(replace(asked, time_limit_s=1e-6))
    assert short.cut_short and not violations(asked, short)
    assert {device for planned in short.policies for device in planned.devices} == {"d0", "d1", "d2", "d3"}
    assert all(len(planned.policies) == 1 for planned in short.policies)
    whole = strategies.get(name)(replace(asked, time_limit_s=1e6))
    assert not whole.cut_short
    for few, many in zip(short.policies, whole.policies, strict=True):
        assert set(few.policies) <= set(many.policies) and len(many.policies) > 1


@pytest.mark.parametrize("name", ["ramsis", "modelswitching"])
def test_without_a_limit_of_time_a_plan_depends_on_nothing_but_its_problem(name, monkeypatch):
    monkeypatch.setattr(by_policy, "POLICIES", 5)
    slow, fast = (replace(problem(demands=(("a", 170.0), ("b", 40.0))), time_limit_s=limit) for limit in (1e-6, 1e6))
    first = strategies.get(name)(slow)
    # Its policies are remembered now.
    again = strategies.get(name)(fast)
    assert not first.cut_short and first.policies == again.policies
    assert 5 <= sum(len(planned.policies) for planned in first.policies) <= 5 + len(first.policies)
    if name == "ramsis":
        monkeypatch.setattr(by_policy, "POLICIES", 7)
        assert sum(len(one.policies) for one in strategies.get(name)(slow).policies) > 5 + 1


def test_planning_is_reported_at_each_policy(few_loads):
    reports = []

    def planned():
        progress.report_to(lambda: reports.append(1))
        return strategies.get("ramsis")(problem())

    plan = copy_context().run(planned)
    assert len(reports) >= sum(len(one.policies) for one in plan.policies)


# Residents and devices do not depend on how many policies there are: one policy a group is made quickest.
def test_memory_and_residents_are_limited():
    plan = strategies.get("ramsis-known-load")
    few = plan(problem(max_resident=2))
    assert {len(here) for here in few.residents.values()} == {2}
    assert all(here[1].endswith("best") for here in few.residents.values())
    small = plan(problem(memory_bytes=70 * MB))
    assert {len(here) for here in small.residents.values()} == {3}
    assert all(len(planned.variants) == 3 for planned in small.policies)


def test_devices_change_applications_only_where_that_helps_much():
    plan = strategies.get("ramsis-known-load")
    first = plan(problem())
    near = replace(problem(demands=(("a", 180.0), ("b", 60.0))), previous=first)
    assert _hosts(plan(near)) == _hosts(first)
    far = replace(problem(demands=(("a", 50.0), ("b", 200.0))), previous=first)
    assert sorted(_hosts(plan(far)).values()) == ["a", "b", "b", "b"]


@pytest.mark.parametrize("name", ["jellyfish+", "modelswitching"])
def test_a_slow_device_among_fast_ones_carries_no_more_than_it_can(name):
    slow, many = variants("a")[::3], []
    for one in slow:
        points = one.profiles["cpu"].points
        quick = LatencyProfile(tuple((rows, seconds / 1000) for rows, seconds in points))
        many.append(replace(one, profiles={**one.profiles, "gpu": quick}))
    asked = replace(problem(devices=1, demands=(("a", 200.0),)), variants=tuple(many))
    asked = replace(asked, devices=(*asked.devices, DeviceResources("g0", "gpu")))
    plan = strategies.get(name)(asked)
    most = {one.id: max(rows / seconds for rows, seconds in one.profiles["cpu"].points) for one in many}
    fastest = most["a-fast"]
    (planned,) = [planned for planned in plan.policies if planned.devices == ("d0",)]
    for policy in planned.policies:
        variant = planned.variants[policy.choose(1, 0.0)]
        # The load of 1,001 such devices together; short simulations overlook a slight overload.
        assert policy.load / (fastest * 1001) <= 1.1 * most[variant] / fastest


def test_a_plan_has_no_more_policies_than_gateways_take():
    profiles = [{"cpu": LatencyProfile(((1, 0.001 * (1 + 0.1 * i)),))} for i in range(90)]
    many = tuple(CandidateVariant(f"v{i:02}", "a", 60 + i / 3, profiles[i]) for i in range(90))
    plan = strategies.get("jellyfish+")(replace(problem(demands=(("a", 50.0),)), variants=many))
    (planned,) = plan.policies
    assert 32 <= len(planned.policies) <= load_policies.MOST_LOADS
    assert planned.policies[-1].choose(1, 0.0) == 0


def _hosts(plan) -> dict[str, str]:
    return {p.device: p.variant.split("-")[0] for p in plan.placements}


def test_the_simulator_serves_by_the_policies(few_loads):
    models = [
        model("p", "fast", 80, cpu={rows: 4 + 4 * rows for rows in range(1, 9)}),
        model("p", "good", 100, cpu={rows: 20 + 16 * rows for rows in range(1, 9)}),
    ]
    control = ControlSettings(period_s=2.0, initial_qps=60, solve_s=60)
    calm = [(16.0 * i, "p") for i in range(300)]
    surge = [(4_800 + 4.0 * i, "p") for i in range(600)]
    results = {
        name: simulate(world(models, calm + surge, ["cpu", "cpu"], slo_s={"p": 0.1}, control=control), name)
        for name in ("ramsis", "clipper-ht", "jellyfish+", "modelswitching")
    }
    found = {name: result.summary for name, result in results.items()}
    assert found["ramsis"]["violation_ratio"] < 0.03
    assert found["clipper-ht"]["effective_accuracy"] == 80 < found["ramsis"]["effective_accuracy"]
    for name in ("jellyfish+", "modelswitching"):
        assert found[name]["violation_ratio"] < 0.1 and found[name]["effective_accuracy"] >= 80
