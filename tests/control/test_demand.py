"""The demand estimate: follows the slow wave, jumps with a burst, never below the floor."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.control.demand import FLOOR, band, estimate


def steady(rate: float, seconds: int, until: int = 1000) -> list:
    return [(t, {"a": rate}) for t in range(until - seconds, until)]


def test_a_steady_rate_is_estimated_as_it_is():
    assert estimate(steady(40, 60), ["a"], 1000)["a"] == pytest.approx(40)


def test_the_current_second_is_not_complete_and_does_not_count():
    seconds = [*steady(40, 60), (1000, {"a": 3})]
    assert estimate(seconds, ["a"], 1000)["a"] == pytest.approx(40)


def test_a_burst_counts_in_full_after_two_seconds():
    seconds = [*steady(20, 60, until=998), (998, {"a": 100}), (999, {"a": 100})]
    assert estimate(seconds, ["a"], 1000)["a"] == pytest.approx(100)


def test_a_rate_that_a_gateway_reports_counts_before_the_statistics_arrive():
    assert estimate(steady(20, 60), ["a"], 1000, {"a": 90.0})["a"] == pytest.approx(90)


def test_noise_within_two_deviations_does_not_pass_for_a_burst():
    seconds = [*steady(36, 60, until=998), (998, {"a": 40}), (999, {"a": 40})]
    assert 36 < estimate(seconds, ["a"], 1000)["a"] < 39


def test_demand_falls_within_seconds_once_the_queries_stop():
    seconds = [*steady(80, 60, until=990), *[(t, {}) for t in range(990, 1000)]]
    assert estimate(seconds, ["a"], 1000)["a"] < 80 * 0.75**9


def test_an_application_nobody_asked_for_gets_the_floor():
    assert estimate([], ["idle"], 1000) == {"idle": FLOOR}


def test_a_second_without_any_report_is_not_taken_for_a_second_without_queries():
    with_gap = [entry for entry in steady(40, 60) if not 970 <= entry[0] < 990]
    assert estimate(with_gap, ["a"], 1000)["a"] == pytest.approx(40)


@given(st.lists(st.integers(0, 500), max_size=60), st.floats(0, 500))
def test_the_estimate_stays_within_what_was_seen(counts, reported):
    seconds = [(1000 - len(counts) + i, {"a": float(count)}) for i, count in enumerate(counts)]
    value = estimate(seconds, ["a"], 1000, {"a": reported})["a"]
    assert FLOOR <= value <= max([FLOOR, reported, *counts]) + 1e-9


@given(st.floats(0.5, 10_000))
def test_a_plan_holds_for_the_demand_it_was_made_for_and_for_its_noise(planned):
    limits = band(planned)
    assert limits.low < planned < limits.high
    # Half of what it was made for is out of the band where that is more than an item or two.
    if planned > 4:
        assert limits.low > planned / 2
    assert limits.high >= planned + 2.9 * math.sqrt(max(planned, 1))
