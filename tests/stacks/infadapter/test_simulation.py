"""InfAdapter's world in the simulator: capacities, costs, loads, and plans that make before they break."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.allocation.problem import CostWeights
from scheduler.simulation import ScenarioError, load, simulate
from scheduler.simulation.engine import IN_TIME
from scheduler.simulation.profiles import Model
from scheduler.simulation.scenario import ControlSettings
from tests.simulation.worlds import world

pytestmark = pytest.mark.wide

PROFILES = """application,variant,accuracy_normalized,device_type,batch,p50_ms,load_ms
pets,quick,70,core,1,40,400
pets,good,78,core,1,250,
"""
CAPACITIES = """application,variant,device_type,cores,items_s
pets,quick,core,1,20
pets,quick,core,2,44
pets,good,core,4,14
pets,good,gpu,4,14
cars,good,core,4,14
"""
SCENARIO = """profiles = "profiles.csv"
capacities = "capacities.csv"
load_time_s = 2
make_before_break = true
[devices]
core = 6
[slo_ms]
default = 750
[costs]
core = 0.1
load_s = 0
budget = 3
[generator]
kind = "poisson"
duration_s = 20
qps = 20
"""


def write(folder, scenario: str = SCENARIO, capacities: str = CAPACITIES, profiles: str = PROFILES):
    (folder / "profiles.csv").write_text(profiles)
    (folder / "capacities.csv").write_text(capacities)
    (folder / "scenario.toml").write_text(scenario)
    return folder / "scenario.toml"


def test_a_scenario_has_capacities_costs_and_loads_by_variant(tmp_path):
    scenario = load(write(tmp_path))
    quick, good = scenario.models
    assert quick.capacities == {"core": ((1, 20.0), (2, 44.0))} and good.capacities == {"core": ((4, 14.0),)}
    assert scenario.load_s(quick) == 0.4 and scenario.load_s(good) == 2.0
    assert scenario.costs == CostWeights(1.0, 0.1, 0.0, 3) and scenario.make_before_break
    assert good.planned(2.0).capacities == good.capacities


@pytest.mark.parametrize("name", ["infadapter", "ms+", "vpa+", "vpa+-middle", "vpa+-fast"])
def test_runs_keep_the_budget(name, tmp_path):
    first = simulate(load(write(tmp_path)), name)
    assert 0 < first.summary["mean_cost"] <= 3
    plans = [planned.allocation for planned in first.record.plans]
    assert all(len({p.device for p in plan.placements}) <= 3 for plan in plans)


FAULTS = {
    "twice": ({"capacities": CAPACITIES + "pets,quick,core,2,45\n"}, "line 7 of .*2 cores of this variant are listed"),
    "no number": ({"capacities": CAPACITIES.replace("44", "many")}, "line 3 of .*must be numbers"),
    "no cores": ({"capacities": CAPACITIES.replace("core,2", "core,0")}, "cores must be from 1 to 65536"),
    "no column": ({"capacities": "application,variant\n"}, "has no column .*device_type.*cores.*items_s"),
    "two loads": ({"profiles": PROFILES + "pets,quick,70,core,2,60,500\n"}, "load_ms 500, and 400 further up"),
    "a word for a load": ({"profiles": PROFILES.replace("400", "soon")}, "load_ms must be a number from 0"),
    "a budget of none": ({"scenario": SCENARIO.replace("budget = 3", "budget = 0")}, "costs.budget: must be a whole"),
    "a number for a flag": (
        {"scenario": SCENARIO.replace("= true", "= 1")},
        "make_before_break: must be true or false",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_are_named(case, tmp_path):
    changes, message = FAULTS[case]
    with pytest.raises(ScenarioError, match=message):
        load(write(tmp_path, **changes))


def test_the_old_plan_serves_until_the_new_devices_are_ready():
    models = [
        Model("p", "good", 100.0, {"core": ((1, 0.1),)}, load_s=0.5),
        Model("p", "quick", 80.0, {"core": ((1, 0.02),)}, load_s=0.5),
    ]
    # From 2/s, for one core of `good`, to 40/s, for one core of `quick`.
    calm, surge = [(500.0 * i, "p") for i in range(20)], [(10_000.0 + 25 * i, "p") for i in range(200)]
    control = ControlSettings(period_s=1.0, burst_check_s=1000, initial_qps=2)
    options = {"control": control, "max_resident": {"core": 1}, "costs": CostWeights(core=1.0, load_s=0.0, budget=1)}
    scenario = world(models, calm + surge, ["core"] * 2, make_before_break=True, **options)
    record = simulate(scenario, "ms+").record
    changed = next(plan for plan in record.plans if plan.allocation.placements[0].variant == "p/quick")
    assert 11 <= changed.at <= 12
    # In another place, for which the old one waits: `good` answers what arrives until the load has ended.
    assert record.plans[0].allocation.placements[0].device != changed.allocation.placements[0].device
    ended = changed.at + 0.5
    times = list(zip(scenario.arrivals.times, record.variant, record.outcome, record.answered, strict=True))
    assert {variant for at, variant, outcome, *_ in times if at < changed.at and outcome == IN_TIME} == {0}
    answered = [at for _, variant, outcome, at in times if outcome == IN_TIME and changed.at < at < ended]
    assert len(answered) == 5
    assert {variant for at, variant, outcome, _ in times if at > ended and outcome == IN_TIME} == {1}
    # Otherwise the application has no device until then.
    broken = simulate(replace(scenario, make_before_break=False), "ms+").record
    answered = [at for at, outcome in zip(broken.answered, broken.outcome, strict=True) if outcome == IN_TIME]
    assert not [at for at in answered if changed.at + 0.1 < at < ended]
