"""Promises by simulation of the live system's own objects on arrivals like those recorded."""

import math
from dataclasses import replace

import pytest

from scheduler.promises import windows
from scheduler.promises.windows import (
    LEAST_WINDOWS,
    NothingToPromise,
    Windows,
    run_ratios,
    scenario,
    simulated,
    windows_for,
)
from scheduler.simulation.controller import Controller
from scheduler.simulation.scenario import ControlSettings
from scheduler.stacks import strategies

from .worlds import problem, world

FEW = Windows(20, LEAST_WINDOWS)


@pytest.mark.parametrize("stack", ["nereus", "proteus", "ramsis"])
def test_little_demand_is_served_in_time_and_at_the_accuracy_of_the_plan(stack):
    found = simulated(world(stack=stack), windows=FEW)
    assert found.windows == LEAST_WINDOWS
    digits = found.applications["digits"]
    assert digits.violations < 1e-6 and digits.violations_interval.low == 0.0
    assert 90.0 <= digits.accuracy <= 100.0
    assert digits.accuracy_interval.holds(digits.accuracy)


def test_arrivals_are_those_recorded_times_their_factor():
    once = world(demand=40.0)
    twice = replace(once, factors={"digits": 2.0})
    items = [simulated(w, windows=FEW).applications["digits"].items for w in (once, twice)]
    assert items == [40 * FEW.length * FEW.count, 80 * FEW.length * FEW.count]


def test_arrivals_that_would_take_for_ever_are_not_simulated(monkeypatch):
    with pytest.raises(NothingToPromise, match="at most 100,000 are"):
        simulated(world(demand=20.0, arriving=1e6))
    monkeypatch.setattr(windows, "LONGEST_S", 0.0)
    with pytest.raises(NothingToPromise, match="0 of 19 windows were done within 0 s"):
        simulated(world())


def test_windows_depend_on_the_load_alone():
    assert windows_for(world()) == (30, 19)
    assert windows_for(world(arriving=995.0)) == (2, 19)
    assert windows_for(world(arriving=50_000.0)) == (2, LEAST_WINDOWS)
    assert windows_for(world(), world(arriving=995.0)) == (2, 19), "what is compared has the same windows"


def test_no_arrivals_at_all_are_simulated_and_promise_nothing():
    silent = replace(world(), factors={"digits": 0.0, "words": 0.0})
    assert simulated(silent, windows=FEW).applications == {}


def test_progress_is_reported_and_rises():
    steps = []
    found = simulated(world(), steps.append, windows=FEW)
    assert len(steps) == found.windows
    assert steps == sorted(steps) and steps[-1] <= 1.0


def test_the_plan_in_force_is_the_first_and_loaded():
    """It serves digits by its quick variant only, though a better one would do."""
    made = problem()
    narrow = replace(made, variants=tuple(v for v in made.variants if v.name != "good"))
    seldom = ControlSettings(period_s=1000.0)
    before = replace(world(), allocation=strategies.get("nereus")(narrow), control=seldom)
    found = simulated(before, windows=FEW).applications["digits"]
    assert found.accuracy == pytest.approx(90.0)
    assert found.violations == 0.0


def test_later_plans_are_for_the_quantile_that_is_asked():
    demand = {}
    for quantile in (0.5, 0.95, 0.99):
        made = replace(world(), quantile=quantile, control=ControlSettings(period_s=1.0))
        controller = Controller(scenario(made, 2, 0), "nereus")
        loaded = {device.id: () for device in made.problem.devices}
        _, second = (controller.plan(now, loaded) for now in (0.0, 1.0))
        demand[quantile] = second.problem.applications[0].demand
    assert demand[0.5] < demand[0.95] < demand[0.99]


def test_run_times_go_through_the_median_and_the_95th_percentile():
    ratios = run_ratios(0.8)
    assert ratios[9] < 1.0 < ratios[10]
    assert math.isclose(ratios[18], 1 / 0.8, rel_tol=0.03)
    assert set(run_ratios(1.0)) == {1.0}
