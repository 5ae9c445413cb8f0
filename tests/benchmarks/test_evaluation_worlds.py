"""Worlds that the default was not made for."""

from __future__ import annotations

import types

import pytest

from benchmarks.evaluation import unlike, worlds
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


def test_cold_violations_are_those_of_the_first_seconds():
    assert section._cold(found(0.51, 99.0)) == 0.01


def test_the_bound_is_what_is_lost_to_first_loads_or_what_the_fluid_reference_does_not_serve():
    for cold, served, most in ((0.002, 1.0, "0.200%"), (0.0, 0.997, "0.300%"), (0.002, 0.997, "0.300%")):
        assert section._row("heterogeneous", found(0.01, 99.0, cold=cold, served=served))[3] == most


def test_a_faster_trace_has_the_same_queries_sooner(tmp_path):
    data = folder(tmp_path / "data")
    usual = worlds.published(data, "zipf_gamma", False).scenario().arrivals
    fast = worlds.faster(data, tmp_path / "made", "zipf_gamma", 2.0, False).scenario().arrivals
    assert fast.applications == usual.applications
    assert fast.times == pytest.approx([t / 2 for t in usual.times], abs=1e-5)


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
