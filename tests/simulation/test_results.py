"""The figures that a simulation ends with, and the files that it writes."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from scheduler.simulation import SimulationResults, simulate
from scheduler.simulation.engine import DROPPED, IN_TIME, LATE, Record
from scheduler.simulation.fluid import Reference, fluid_reference
from workers.dispatch.stacks import DEFAULT, STACKS

from .worlds import model, world

EXACT = model("q", "exact", 100, cpu={1: 100})
ROUGH = model("q", "rough", 80, cpu={1: 10})


def finished(scenario, variant, outcome=None) -> SimulationResults:
    """Results of an engine that ended with these outcomes, each after 100 ms; by default all in time."""
    answered = array("d", [t + 0.1 for t in scenario.arrivals.times])
    variants = tuple((m.application, m.name, m.accuracy) for m in scenario.models)
    outcome = bytearray([IN_TIME] * len(answered)) if outcome is None else outcome
    return SimulationResults(scenario, STACKS[DEFAULT], Record(outcome, answered, variant, variants, (), 0, 1.0, 1.0))


def test_the_fluid_reference_mixes_variants_to_use_all_of_the_time():
    # 50 items/s on one device, 10/s exact or 100/s rough: x + (50 - x) / 10 = 10, so x = 50/9 of them are exact.
    scenario = world([EXACT, ROUGH], [(20 * i, "q") for i in range(250)])
    exact = 50 / 9
    assert fluid_reference(scenario).accuracy == pytest.approx((exact * 100 + (50 - exact) * 80) / 50, abs=1e-4)


def test_the_fluid_reference_serves_what_it_can_before_it_looks_at_accuracy():
    scenario = world([EXACT, ROUGH], [(4 * i, "q") for i in range(1250)])
    assert fluid_reference(scenario).accuracy == pytest.approx(80, abs=1e-3)


def test_beside_a_fluid_references_accuracy_stands_what_it_serves():
    # 250 items/s where 100/s can be served: 40 %, all of them rough. Who serves fewer may pass that accuracy.
    scenario = world([EXACT, ROUGH], [(4 * i, "q") for i in range(1250)])
    assert fluid_reference(scenario).served == pytest.approx(0.4)
    ran = simulate(scenario, "clipper-ha").summary
    assert ran["fluid_reference_served"] == ran["fluid_reference_slo_served"] == pytest.approx(0.4)
    assert ran["effective_accuracy"] > ran["fluid_reference_slo_accuracy"] + 10
    assert ran["in_time"] / ran["queries"] < 0.4
    assert fluid_reference(world([EXACT, ROUGH], [(20 * i, "q") for i in range(250)])).served == pytest.approx(
        1, abs=1e-6
    )


def test_the_fluid_reference_keeps_batches_within_half_the_slo():
    scenario = world([EXACT, ROUGH], [(1000 * i, "q") for i in range(5)], slo_s={"q": 0.19})
    assert fluid_reference(scenario).accuracy == pytest.approx(80)


def test_the_drop_is_that_of_the_worst_whole_ten_seconds_after_the_first_twenty():
    # Ten queries a second, exact but where ``rough`` says how many of each second's are not.
    rough = {**dict.fromkeys(range(0, 20), 10), 33: 10, 34: 5, **dict.fromkeys(range(40, 45), 10)}
    arrivals = [(1000 * second + 100 * i, "q") for second in range(45) for i in range(10)]
    scenario = world([EXACT, ROUGH], arrivals)
    variant = array("i", [int(i < rough.get(second, 0)) for second in range(45) for i in range(10)])
    # The first 20 s, all rough, do not count, and neither do the last 5 s, which are no whole window.
    assert finished(scenario, variant).summary["max_accuracy_drop_10s"] == pytest.approx(15 / 100 * 20)


def test_a_window_in_which_nothing_was_in_time_has_no_accuracy_and_shows_in_the_violations():
    scenario = world([EXACT, ROUGH], [(1000 * second, "q") for second in range(40)])
    variant = array("i", [0] * 40)
    results = finished(scenario, variant, bytearray([IN_TIME] * 20 + [LATE] * 5 + [DROPPED] * 5 + [IN_TIME] * 10))
    assert results.summary["max_accuracy_drop_10s"] == 0
    assert (results.summary["late"], results.summary["dropped"]) == (5, 5)
    assert results.summary["violation_ratio"] == 0.25
    assert results.summary["median_latency_ms"] == pytest.approx(100)


def test_a_run_too_short_for_a_drop_has_none():
    assert simulate(world([EXACT], [(0, "q")]), "proteus").summary["max_accuracy_drop_10s"] is None


def test_applications_and_variants_are_counted_by_themselves_and_add_up():
    models = [EXACT, ROUGH, model("other", "only", 100, cpu={1: 20})]
    arrivals = [(60 * i, "q") for i in range(80)] + [(50 * i + 7, "other") for i in range(100)]
    summary = simulate(world(models, arrivals, ["cpu", "cpu"]), "proteus").summary
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
    assert fluid_reference(scenario, 1.0).accuracy == pytest.approx(100)
    summary = simulate(scenario, "proteus").summary
    assert summary["fluid_reference_accuracy"] == pytest.approx(80)
    assert summary["fluid_reference_slo_accuracy"] == pytest.approx(100)


def test_a_fluid_reference_weighs_windows_by_what_they_serve_and_uses_each_windows_own_demand():
    # 5 s at 5/s, all exact; 5 s at 100/s, none of which can be exact any more; 5 s without any demand.
    arrivals = [(200 * i, "q") for i in range(25)] + [(5000 + 10 * i, "q") for i in range(500)] + [(15_000, "q")]
    assert fluid_reference(world([EXACT, ROUGH], arrivals)).accuracy == pytest.approx(
        (26 * 100 + 500 * 80) / 526, abs=1e-4
    )


def test_a_fluid_reference_serves_nothing_where_nothing_is_quick_enough():
    assert fluid_reference(world([EXACT], [(0, "q")], slo_s={"q": 0.05})) == Reference(None, 0.0)
    assert fluid_reference(world([EXACT], [])) == Reference(None, None)


def test_solves_count_as_cut_short_where_time_ran_out_and_not_where_a_gap_remained():
    scenario = world([EXACT, ROUGH], [(20 * i, "q") for i in range(50)])
    ran = simulate(scenario, "nereus")
    plan = ran.record.plans[0]
    plans = [
        replace(plan, allocation=replace(plan.allocation, status=status, cut_short=cut_short))
        for status, cut_short in (("feasible", False), ("optimal", True), ("heuristic", True), ("optimal", False))
    ]
    counted = SimulationResults(scenario, ran.stack, replace(ran.record, plans=tuple(plans)))
    assert counted.summary["solves_cut_short"] == 2 and ran.summary["solves_cut_short"] == 0
