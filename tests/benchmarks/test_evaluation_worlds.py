"""Worlds that the default was not made for: what is asked, and who misses it."""

from __future__ import annotations

import types

import pytest

from benchmarks.evaluation import unlike
from benchmarks.evaluation.sections import worlds as section
from scheduler.simulation.seconds import Second

from .worlds import folder

pytestmark = pytest.mark.wide


def found(violations: float, accuracy: float, reference: float = 99.0, cold: float = 0.0, served: float = 1.0):
    summary = {
        "violation_ratio": violations,
        "effective_accuracy": accuracy,
        "fluid_reference_slo_accuracy": reference,
        "fluid_reference_slo_served": served,
        "cold_bound": cold,
        "queries": 1000,
    }
    return types.SimpleNamespace(
        summary=summary, seconds=[Second(0, 500, 490, 0, 10, 99.0), Second(10, 500, 0, 0, 500, None)]
    )


def verdict(name: str, some: dict) -> str:
    return section._row(name, section.ASKED[name], some)[-1]


def test_a_world_is_judged_by_violations_and_accuracy():
    assert verdict("3400", {"3400": found(0.001, 60.0)}) == "reached"
    assert verdict("3400", {"3400": found(0.0011, 60.0)}) == "**missed**: violations"
    assert verdict("zipf_gamma", {"zipf_gamma": found(0.01, 97.0)}) == "**missed**: violations and accuracy"
    assert verdict("zipf_gamma", {"zipf_gamma": found(0.0, 97.9)}) == "reached"


def test_cold_violations_are_those_of_the_first_seconds():
    assert section._cold(found(0.51, 99.0)) == 0.01
    assert "these violate no more than was asked: zipf_gamma." in section._mostly_cold(
        {"zipf_gamma": found(0.0104, 99.0)}
    )
    assert section._mostly_cold({"zipf_gamma": found(0.0106, 99.0), "3400": found(0.001, 60.0)}) == ""


def test_the_bound_is_what_is_lost_to_first_loads_or_what_the_fluid_reference_does_not_serve():
    for cold, served, most in ((0.002, 1.0, "0.200%"), (0.0, 0.997, "0.300%"), (0.002, 0.997, "0.300%")):
        some = {"heterogeneous": found(0.01, 99.0, cold=cold, served=served)}
        assert section._row("heterogeneous", section.ASKED["heterogeneous"], some)[3] == most
    some = {"heterogeneous": found(0.01, 99.0, cold=0.0021), "zipf_gamma": found(0.01, 99.0, cold=0.0005)}
    assert section._out_of_reach(some).endswith("any rule: heterogeneous (0.20% asked, 0.210% at the least).")
    assert section._out_of_reach({"heterogeneous": found(0.01, 99.0, cold=0.002)}) == ""


def test_some_accuracies_are_asked_for_beside_another_one():
    assert verdict(section.UNLIKE, {section.UNLIKE: found(0.0, 98.7)}) == "reached"
    assert verdict(section.UNLIKE, {section.UNLIKE: found(0.0, 98.6)}) == "**missed**: accuracy"
    right = {section.RIGHT: found(0.0, 99.5)}
    assert verdict(section.WRONG, {**right, section.WRONG: found(0.004, 99.2)}) == "reached"
    assert verdict(section.WRONG, {**right, section.WRONG: found(0.004, 99.0)}) == "**missed**: accuracy"


def test_unlike_gpus_have_run_times_of_their_own_and_one_application_bursts(tmp_path, monkeypatch):
    monkeypatch.setattr(unlike, "BURSTING", "words")
    scenario = unlike.world(folder(tmp_path / "data"), tmp_path / "made", False, 220.0).scenario()
    assert len(scenario.devices) == 4 * unlike.DEVICES
    tiny = next(model for model in scenario.models if model.id == "faces/tiny")
    ms = {kind: points[0][1] * 1000 for kind, points in tiny.points.items()}
    assert ms["ampere"] < ms["turing"] < ms["pascal"] < ms["kepler"]
    start, end = unlike.BURSTS[0]
    times, words = scenario.arrivals.times, scenario.arrivals.names.index("words")
    seconds = [
        sum(a == words and low <= t < high for t, a in zip(times, scenario.arrivals.applications, strict=True))
        for low, high in ((start, end), (start - (end - start), start))
    ]
    assert seconds[0] > 2 * seconds[1]
