"""Residents that are not to be run for the moment, since others would wait."""

from __future__ import annotations

import pytest

from scheduler.allocation.blocking import blocking
from scheduler.allocation.problem import ApplicationDemand, CandidateVariant, DeviceResources, LatencyProfile, Problem
from scheduler.stacks import strategies


def problem(short_qps: float, long_qps: float, long_slo_s: float = 5.0, devices: int = 2) -> Problem:
    """Devices run ``short``, whose SLO is 0.3 s, in 10 ms and ``long`` in 0.9 s, and may hold all."""
    return Problem(
        devices=tuple(DeviceResources(f"cpu-{i}", "cpu") for i in range(devices)),
        applications=(ApplicationDemand("short", 0.3, short_qps), ApplicationDemand("long", long_slo_s, long_qps)),
        variants=(
            CandidateVariant("short/v", "short", 100.0, {"cpu": LatencyProfile(((1, 0.01),))}),
            CandidateVariant("long/v", "long", 100.0, {"cpu": LatencyProfile(((1, 0.9),))}),
        ),
    )


def test_long_runs_stay_off_the_devices_of_those_who_cannot_wait():
    asked = problem(short_qps=30, long_qps=0.5)
    plan = strategies.get("nereus")(asked)
    placed = {p.variant.split("/")[0]: p.device for p in plan.placements}
    assert set(placed) == {"short", "long"} and placed["short"] != placed["long"]
    found = blocking(asked, plan)
    assert found == {placed["short"]: frozenset({"long/v"}), placed["long"]: frozenset()}


def test_what_the_plan_leaves_out_on_purpose_is_run_nowhere_in_the_way():
    asked = problem(short_qps=80, long_qps=10, devices=1)
    plan = strategies.get("nereus")(asked)
    assert {p.variant for p in plan.placements} == {"short/v"} and plan.left_out["long"] == pytest.approx(10)
    assert blocking(asked, plan) == {"cpu-0": frozenset({"long/v"})}


@pytest.mark.parametrize("changed", [{"long_slo_s": 0.95, "long_qps": 0.0}, {"long_qps": 0.0, "devices": 1}])
def test_what_hardly_anybody_asks_for_may_be_run(changed):
    asked = problem(**({"short_qps": 30, "long_qps": 0.5} | changed))
    plan = strategies.get("nereus")(asked)
    assert not any(blocking(asked, plan).values())
