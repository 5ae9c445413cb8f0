"""The learning forecaster: bounded, and better the longer it looks.

Its forecasts are of the size of the demand that it saw.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulation.learned import (
    EVERY_S,
    INPUTS,
    LEARNED,
    LIMIT,
    MINUTE,
    NEXT_MINUTE,
    PAST_S,
    TREND,
    ForecastTarget,
    Learner,
    forecast,
    inputs,
    learn,
    start,
    target_of,
)

PERIOD = ForecastTarget(30)
TARGETS = st.sampled_from([NEXT_MINUTE, ForecastTarget(1), ForecastTarget(10), PERIOD, ForecastTarget(3600)])
COUNTS = st.lists(st.integers(0, 1_000_000), min_size=1, max_size=PAST_S + 5)


def column(counts) -> np.ndarray:
    return np.array(counts, dtype=float)[:, None]


def starting(counts, target: ForecastTarget = PERIOD, quantile: float = 0.95):
    median, upper = forecast(column(counts), start(target, quantile)[None])
    return float(median[0]), float(upper[0])


def history(counts, until: int) -> list[tuple[int, dict[str, float]]]:
    return [(until - len(counts) + i, {"a": float(count)}) for i, count in enumerate(counts)]


@given(COUNTS, TARGETS, st.floats(0.5, 0.999))
def test_any_past_gives_a_forecast_within_its_bounds(counts, target, quantile):
    median, upper = starting(counts, target, quantile)
    assert 0 <= median <= upper <= LIMIT * max(counts[-PAST_S:])


@given(COUNTS, st.integers(0, 2**32 - 1), TARGETS)
def test_any_coefficients_give_a_forecast_within_its_bounds(counts, seed, target):
    coefficients = np.random.default_rng(seed).normal(0, 100, (1, 2, INPUTS))
    median, upper = forecast(column(counts), coefficients)
    assert 0 <= median[0] <= upper[0] <= LIMIT * max(counts[-PAST_S:])


@given(st.lists(st.integers(0, 1_000_000), max_size=200), TARGETS)
def test_after_three_minutes_of_silence_nothing_is_forecast(counts, target):
    assert starting([*counts, *[0] * PAST_S], target) == (0.0, 0.0)


@given(COUNTS)
def test_what_is_older_than_three_minutes_does_not_matter(counts):
    assert starting([*[777] * 50, *[5] * PAST_S, *counts][-PAST_S - 50 :]) == starting(
        [*[5] * PAST_S, *counts][-PAST_S:]
    )


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=30), TARGETS)
def test_any_examples_leave_finite_coefficients(examples, target):
    learner = Learner(target, 0.95)
    for before, came in examples:
        learner.learn(inputs(column([before, 0, before // 3]))[0], float(came))
        assert np.isfinite(learner.coefficients).all()
    assert np.isfinite(learner.state).all()


@pytest.mark.parametrize("rate", [2, 20, 200, 4000])
def test_at_any_rate_a_steady_application_is_forecast_near_its_rate_with_a_margin(rate):
    random = np.random.default_rng(rate)
    found = np.array([starting(random.poisson(rate, PAST_S)) for _ in range(200)])
    assert 0.9 * rate < found[:, 0].mean() < 1.1 * rate
    came = random.poisson(30 * rate, 200) / 30
    assert (found[:, 1] >= came).mean() > 0.75
    assert found[:, 1].mean() < rate + 3 * math.sqrt(rate) + 0.1 * rate


def test_the_largest_second_of_a_minute_is_forecast_above_the_mean():
    counts = np.random.default_rng(1).poisson(60, PAST_S)
    assert starting(counts, PERIOD)[1] < starting(counts, NEXT_MINUTE)[1]
    assert 60 + 60**0.5 < starting(counts, NEXT_MINUTE)[0] < 60 + 5 * 60**0.5


def test_a_higher_quantile_is_a_higher_plan():
    counts = np.random.default_rng(1).poisson(50, PAST_S)
    assert starting(counts, quantile=0.8)[1] < starting(counts)[1] < starting(counts, quantile=0.99)[1]


def taught(seconds, target: ForecastTarget = PERIOD) -> Learner:
    learner = Learner(target, 0.95)
    learn({"a": learner}, seconds, target, None, seconds[-1][0] + 1)
    return learner


def test_it_learns_a_rhythm_that_the_start_does_not_know():
    # Twenty seconds at 200/s follow on forty at 20/s: the next ten seconds' mean is known for certain.
    wave = np.tile([20.0] * 40 + [200.0] * 20, 300)
    seconds, target = history(wave, len(wave)), ForecastTarget(10)
    learner = Learner(target, 0.95)
    first = len(wave) // 2
    learn({"a": learner}, seconds[:first], target, None, first)

    def error(coefficients):
        off = []
        for moment in range(first, first + 600, EVERY_S):
            median = forecast(column(wave[moment - PAST_S : moment]), coefficients[None]).median[0]
            off.append(abs(median - wave[moment : moment + 10].mean()))
        return np.mean(off)

    assert error(learner.coefficients) < 0.9 * error(start(target, 0.95))


def test_learning_in_pieces_is_learning_at_once():
    counts = np.random.default_rng(3).poisson(40, 900)
    seconds = history(counts, 900)
    at_once, piecewise, since = taught(seconds), Learner(PERIOD, 0.95), None
    for now in (*range(300, 900, 30), 900):
        since = learn({"a": piecewise}, seconds[max(0, now - 300) : now], PERIOD, since, now)
    assert piecewise.state == pytest.approx(at_once.state)


def test_an_earlier_state_is_taken_up_and_a_damaged_one_is_not():
    learner = taught(history(np.random.default_rng(3).poisson(40, 900), 900))
    again = Learner(PERIOD, 0.95, learner.state.copy())
    assert again.coefficients == pytest.approx(learner.coefficients)
    fresh = Learner(PERIOD, 0.95).coefficients
    for damaged in (np.full_like(learner.state, np.nan), np.zeros((3, 3)), np.array([])):
        assert (Learner(PERIOD, 0.95, damaged).coefficients == fresh).all()


def test_seconds_without_a_report_are_no_example():
    counts = np.random.default_rng(3).poisson(40, 400)
    # 130 of 400 s are missing: examples that need them are left out, and not taken for demand of zero.
    with_gap = [entry for entry in history(counts, 400) if not 130 <= entry[0] < 260]
    learner = taught(with_gap)
    whole = taught(history(counts, 400))
    assert 0 < np.abs(learner.state).sum() < np.abs(whole.state).sum()
    median = forecast(column(counts[-PAST_S:]), learner.coefficients[None]).median[0]
    assert 35 < median < 45


def test_silence_teaches_nothing():
    assert (taught(history([0] * 600, 600)).state == 0).all()


def test_a_clock_that_was_set_does_not_stop_it():
    counts = np.random.default_rng(3).poisson(40, 400)
    # The last example was at a moment that lies in the future by the clock as it shows now.
    learner = Learner(PERIOD, 0.95)
    assert learn({"a": learner}, history(counts, 400), PERIOD, 5000, 400) <= 400
    assert np.abs(learner.state).sum() > 0
    ahead = history(counts, 90_000)
    assert 89_000 < learn({"a": Learner(PERIOD, 0.95)}, ahead, PERIOD, 400, 90_000) <= 90_000


def test_without_any_report_there_is_nothing_to_learn_from():
    assert learn({"a": Learner(PERIOD, 0.95)}, [], PERIOD, None, 500) == 470
    assert learn({}, history([1, 2, 3], 500), PERIOD, None, 500) == 470


def test_each_forecaster_has_its_target():
    assert target_of(TREND, 30) is None
    assert target_of(LEARNED, 30) == ForecastTarget(30)
    assert target_of(LEARNED, 0.5) == ForecastTarget(1)
    assert target_of(LEARNED, 3600) == ForecastTarget(30)
    assert target_of(MINUTE, 30) == NEXT_MINUTE
