"""The figures that a simulation ends with, and the files that it writes."""

from __future__ import annotations

import pytest

from scheduler.simulation import simulate
from scheduler.simulation.fluid import fluid_reference
from scheduler.simulation.scenario import Control

from .worlds import model, world

EXACT = model("q", "exact", 100, cpu={1: 100})
ROUGH = model("q", "rough", 80, cpu={1: 10})


def test_the_fluid_reference_mixes_variants_to_use_all_of_the_time():
    # 50 items/s on one device, 10/s exact or 100/s rough: x + (50 - x) / 10 = 10, so x = 50/9 of them are exact.
    scenario = world([EXACT, ROUGH], [(20 * i, "q") for i in range(250)])
    exact = 50 / 9
    assert fluid_reference(scenario) == pytest.approx((exact * 100 + (50 - exact) * 80) / 50, abs=1e-4)


def test_the_fluid_reference_serves_what_it_can_before_it_looks_at_accuracy():
    scenario = world([EXACT, ROUGH], [(4 * i, "q") for i in range(1250)])
    assert fluid_reference(scenario) == pytest.approx(80, abs=1e-3)


def test_the_fluid_reference_keeps_batches_within_half_the_slo():
    scenario = world([EXACT, ROUGH], [(1000 * i, "q") for i in range(5)], slo_s={"q": 0.19})
    assert fluid_reference(scenario) == pytest.approx(80)


def test_the_drop_is_that_of_the_worst_whole_ten_seconds_after_the_first_twenty():
    # 5/s fit the exact variant; from 30 s to 40 s there are 50/s. The first 10 s, as busy, do not count,
    # and neither do the 5 s after that, which are rough still.
    arrivals = [(20 * i, "q") for i in range(500)] + [(10_000 + 200 * i, "q") for i in range(100)]
    arrivals += [(30_000 + 20 * i, "q") for i in range(500)] + [(40_000 + 200 * i, "q") for i in range(25)]
    control = Control(period_s=10, burst_check_s=1, initial_qps=5)
    results = simulate(world([EXACT, ROUGH], arrivals, control=control), "proteus", "proteus", "shares")
    seconds = [s for s in results.per_second if 30 <= s.second < 40]
    served = sum(s.in_time for s in seconds)
    worst = sum(s.in_time * s.effective_accuracy for s in seconds if s.in_time) / served
    assert worst < 90
    assert results.summary["max_accuracy_drop_10s"] == pytest.approx(100 - worst)


def test_a_run_too_short_for_a_drop_has_none():
    assert simulate(world([EXACT], [(0, "q")]), "proteus").summary["max_accuracy_drop_10s"] is None


def test_applications_and_variants_are_counted_by_themselves_and_add_up():
    models = [EXACT, ROUGH, model("other", "only", 100, cpu={1: 20})]
    arrivals = [(60 * i, "q") for i in range(80)] + [(50 * i + 7, "other") for i in range(100)]
    summary = simulate(world(models, arrivals, ["cpu", "cpu"]), "proteus", "proteus", "shares").summary
    parts = summary["per_application"]
    assert list(parts) == ["q", "other"] and (parts["q"]["queries"], parts["other"]["queries"]) == (80, 100)
    for key in ("queries", "in_time", "late", "dropped"):
        assert sum(part[key] for part in parts.values()) == summary[key]
    assert sum(v["in_time"] for v in summary["per_variant"].values()) == summary["in_time"]
    q = {name: v for name, v in summary["per_variant"].items() if name.startswith("q/")}
    weighted = sum(v["in_time"] * v["accuracy"] for v in q.values())
    assert parts["q"]["effective_accuracy"] == pytest.approx(weighted / parts["q"]["in_time"])


def test_the_second_fluid_reference_lets_batches_take_the_whole_slo():
    # The exact variant takes 100 ms of an SLO of 190 ms: too long for half of it, well within all of it.
    scenario = world([EXACT, ROUGH], [(1000 * i, "q") for i in range(5)], slo_s={"q": 0.19})
    assert fluid_reference(scenario, 1.0) == pytest.approx(100)
    summary = simulate(scenario, "proteus").summary
    assert summary["fluid_reference_accuracy"] == pytest.approx(80)
    assert summary["fluid_reference_slo_accuracy"] == pytest.approx(100)


def test_a_fluid_reference_weighs_windows_by_what_they_serve_and_uses_each_windows_own_demand():
    # 5 s at 5/s, all exact; 5 s at 100/s, none of which can be exact any more; 5 s without any demand.
    arrivals = [(200 * i, "q") for i in range(25)] + [(5000 + 10 * i, "q") for i in range(500)] + [(15_000, "q")]
    assert fluid_reference(world([EXACT, ROUGH], arrivals)) == pytest.approx((26 * 100 + 500 * 80) / 526, abs=1e-4)


def test_a_fluid_reference_serves_nothing_where_nothing_is_quick_enough():
    assert fluid_reference(world([EXACT], [(0, "q")], slo_s={"q": 0.05})) is None
