"""The demand estimate and its band: small for steady demand, large for varying; a burst counts at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.control.demand import FLOOR, HISTORY_S, band, estimates


def history(counts, until: int = 1000) -> list:
    return [(until - len(counts) + i, {"a": float(count)}) for i, count in enumerate(counts)]


def planned(counts, **options) -> float:
    return estimates(history(counts), ["a"], 1000, **options).planned["a"]


def poisson(rate: float, seconds: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).poisson(rate, seconds)


def test_a_steady_rate_is_planned_with_a_small_margin():
    assert 40 < planned([40] * 60) < 40 * 1.1


def test_an_application_that_varies_more_gets_a_larger_margin():
    varied = 100 + 40 * np.sign(np.sin(np.arange(120) / 2.5))
    margins = [planned(varied[start : start + 60]) / 100 for start in range(60)]
    assert np.mean(margins) > 1.15 > planned([100] * 60) / 100


def test_noise_costs_a_large_application_relatively_less():
    large, middle, small = (
        np.mean([planned(poisson(rate, 60, seed)) for seed in range(30)]) / rate for rate in (4000, 400, 4)
    )
    assert 1.02 < large < middle < small


def test_a_longer_period_is_planned_with_a_larger_margin_for_drift():
    assert planned([100] * 60, horizon_s=30) > planned([100] * 60, horizon_s=10)


def test_a_higher_quantile_is_a_higher_plan():
    counts = poisson(50, 60)
    assert planned(counts, quantile=0.8) < planned(counts) < planned(counts, quantile=0.99)


def test_a_rise_that_goes_on_is_planned_for_ahead():
    ramp = np.arange(60) * 5 + 100
    assert planned(ramp) > ramp[-1]


def test_the_current_second_is_not_complete_and_does_not_count():
    seconds = [*history([40] * 60), (1000, {"a": 3.0})]
    assert estimates(seconds, ["a"], 1000).planned == estimates(seconds[:-1], ["a"], 1000).planned


def test_a_burst_counts_in_full_after_two_seconds():
    assert 100 <= planned([20] * 58 + [100] * 2) < 115


def test_a_rate_that_a_gateway_reports_counts_before_the_statistics_arrive():
    assert planned([20] * 60, observed={"a": 90.0, "gone": 500.0}) == 90
    assert planned([20] * 60, observed={"a": 5.0}) == planned([20] * 60)
    assert planned([20] * 60, observed={"a": math.inf}) == planned([20] * 60)


def test_two_seconds_within_the_noise_do_not_pass_for_a_burst():
    assert planned([36] * 58 + [40] * 2) < 45


def test_a_burst_that_is_over_is_soon_forgotten():
    over = [20] * 30 + [200] * 10 + [20] * 20
    assert planned(over) < 30


def test_demand_falls_within_seconds_once_the_queries_stop():
    assert planned([80] * 50 + [0] * 10) < 30
    assert planned([80] * 30 + [0] * 30) < 3


def test_an_application_nobody_asked_for_gets_the_floor():
    assert estimates([], ["idle"], 1000).planned == {"idle": FLOOR}
    assert estimates(history([40] * 60), ["idle"], 1000).planned == {"idle": FLOOR}
    assert estimates(history([40] * 60), [], 1000).planned == {}


def test_a_second_without_any_report_is_not_taken_for_a_second_without_queries():
    with_gap = [entry for entry in history([40] * 60) if not 970 <= entry[0] < 990]
    assert 40 < estimates(with_gap, ["a"], 1000).planned["a"] < 40 * 1.1


def test_applications_do_not_influence_each_other():
    alone = planned(poisson(50, 60))
    seconds = [(t, counts | {"b": float(t % 7 * 100)}) for t, counts in history(poisson(50, 60))]
    assert estimates(seconds, ["b", "a"], 1000).planned["a"] == pytest.approx(alone)


def test_what_is_older_than_the_history_does_not_matter():
    counts = [5000] * 100 + [40] * HISTORY_S
    assert planned(counts) == planned(counts[-HISTORY_S:])


@given(st.lists(st.integers(0, 500), max_size=70), st.floats(0, 500), st.sampled_from([1, 10, 30, 3600]))
def test_any_history_gives_a_sane_estimate_and_the_same_again(counts, reported, horizon_s):
    value = planned(counts, observed={"a": reported}, horizon_s=horizon_s)
    assert max(FLOOR, reported) <= value < 4 * max([FLOOR, reported, *counts]) + 5
    assert value == planned(counts, observed={"a": reported}, horizon_s=horizon_s)


@given(st.floats(0.5, 10_000), st.integers(1, 100))
def test_a_plan_holds_for_the_demand_it_was_made_for_and_for_its_noise(rate, applications):
    limits = band(rate, applications)
    assert limits.low < rate < limits.rise < limits.high < limits.surge
    # Half of what it was made for is in the band; a quarter is not, where that is more than a few items.
    assert limits.low <= 0.5 * max(rate, FLOOR)
    if rate > 20:
        assert limits.low > rate / 4
    assert limits.high >= rate + 2.9 * math.sqrt(max(rate, 1))
