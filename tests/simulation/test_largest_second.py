"""The forecaster of the next minute's largest second: bounded, and of the size of the demand that it saw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulation.largest_second import LIMIT, PAST_S, forecast

COUNTS = st.lists(st.integers(0, 1_000_000), min_size=1, max_size=PAST_S + 5)


def forecast_of(counts, quantile: float = 0.95) -> tuple[float, float]:
    median, upper = forecast(np.array(counts, dtype=float)[:, None], quantile)
    return float(median[0]), float(upper[0])


@given(COUNTS, st.floats(0.001, 0.999))
def test_any_past_gives_a_forecast_within_its_bounds(counts, quantile):
    median, upper = forecast_of(counts, quantile)
    assert 0 <= median <= upper <= LIMIT * max(counts[-PAST_S:])


@given(st.lists(st.integers(0, 1_000_000), max_size=200))
def test_after_three_minutes_of_silence_nothing_is_forecast(counts):
    assert forecast_of([*counts, *[0] * PAST_S]) == (0.0, 0.0)


@given(COUNTS)
def test_what_is_older_than_three_minutes_does_not_matter(counts):
    recent = [*[5] * PAST_S, *counts][-PAST_S:]
    assert forecast_of([*[777] * 50, *recent]) == forecast_of(recent)


@pytest.mark.parametrize("rate", [20, 200, 4000])
def test_a_steady_application_is_forecast_above_its_mean_and_not_far(rate):
    random = np.random.default_rng(rate)
    median, upper = np.mean([forecast_of(random.poisson(rate, PAST_S)) for _ in range(50)], axis=0)
    assert rate + rate**0.5 < median < upper < 1.15 * rate + 6 * rate**0.5


def test_a_higher_quantile_is_a_higher_plan():
    counts = np.random.default_rng(1).poisson(50, PAST_S)
    assert forecast_of(counts, 0.8)[1] < forecast_of(counts)[1] < forecast_of(counts, 0.99)[1]
