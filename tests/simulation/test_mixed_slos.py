"""Applications that cannot wait beside one that can and asks for more than all devices together can do."""

import pytest

from scheduler.simulation import simulate
from scheduler.simulation.scenario import ControlSettings

from .worlds import model, world


@pytest.mark.parametrize("load_time_s", [0.0, 0.3])
def test_short_slos_are_kept_while_long_runs_ask_for_everything(load_time_s):
    models = [
        model("short", "accurate", 100.0, cpu={1: 100}),
        model("short", "quick", 80.0, cpu={1: 10, 4: 25}),
        model("long", "only", 100.0, cpu={1: 700}),
    ]
    arrivals = [(20 * i, "short") for i in range(1000)] + [(100 * i + 7, "long") for i in range(200)]
    scenario = world(
        models,
        arrivals,
        ["cpu"] * 3,
        slo_s={"short": 0.3, "long": 5.0},
        control=ControlSettings(period_s=5, burst_check_s=1),
        load_time_s=load_time_s,
    )
    summary = simulate(scenario, "nereus").summary
    short, long = summary["per_application"]["short"], summary["per_application"]["long"]
    # Cold: the first plan knows nothing of the demand, and what the second counts on must be loaded.
    assert short["violation_ratio"] < 0.1, short
    assert 0.1 < 1 - long["violation_ratio"] < 0.6, "what can be spared is still used"
