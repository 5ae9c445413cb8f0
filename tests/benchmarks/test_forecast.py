"""The forecast on published traces.

It covers what it promises, gives away little, and sees no future.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import forecast
from benchmarks.forecast import PROTEUS, PUBLISHED, ewma, learned_start, planned, score

pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"the published traces are not at {PUBLISHED}"),
]
#: starts of periods: all phases of a period, and enough of them
STEP_S, STEP_OF_DAYS_S = 7, 97


@pytest.fixture(scope="module")
def days():
    return forecast.infadapter()


@pytest.mark.parametrize("horizon_s", [10, 30])
def test_on_the_streams_of_twitter_nine_in_ten_periods_are_covered_and_not_all(horizon_s, days):
    for series, step in ((forecast.ramsis(), STEP_S), (days, STEP_OF_DAYS_S)):
        ours, theirs = (score(series, planner, horizon_s, step) for planner in (planned, ewma))
        assert 0.89 <= ours.covered <= 0.96
        assert theirs.covered < 0.85
        assert ours.short < theirs.short
        assert ours.over < 0.16
        assert ours.loss < theirs.loss


@pytest.mark.parametrize("trace", [name for name in PROTEUS if name != "zipf_flat_uniform"])
@pytest.mark.parametrize("horizon_s", [10, 30])
def test_for_single_applications_it_is_a_better_quantile_than_the_weighted_mean(trace, horizon_s):
    series = forecast.proteus(trace)
    ours, theirs = (score(series, planner, horizon_s, STEP_S) for planner in (planned, ewma))
    # Nobody foresees the steps of the bursty trace.
    if trace != "zipf_exponential_bursty":
        assert ours.loss < 0.6 * theirs.loss
        assert ours.short < 0.5 * theirs.short
        if horizon_s == 10:
            assert ours.covered > 0.79
    assert ours.covered > theirs.covered + 0.05
    assert ours.short < theirs.short
    assert ours.over < 2.5 * theirs.over


@pytest.mark.parametrize("horizon_s", [10, 30])
def test_evenly_spaced_queries_need_hardly_any_margin(horizon_s):
    found = score(forecast.proteus("zipf_flat_uniform"), planned, horizon_s, STEP_S)
    assert found.covered == 1.0
    assert found.over < 0.05


def test_neither_a_fearful_nor_a_careless_forecast_would_pass(days):
    def times(factor: float):
        return lambda *past: {name: rate * factor for name, rate in planned(*past).items()}

    ours = score(days, planned, 10, STEP_OF_DAYS_S)
    for factor in (0.85, 1.25):
        other = score(days, times(factor), 10, STEP_OF_DAYS_S)
        assert other.loss > 1.15 * ours.loss
        assert not 0.89 <= other.covered <= 0.96


def test_the_learned_forecast_gives_away_no_more_than_the_weighted_mean(days):
    learned, theirs = (score(days, planner, 10, STEP_OF_DAYS_S) for planner in (learned_start, ewma))
    assert learned.covered > theirs.covered and learned.loss < theirs.loss


def test_what_comes_later_has_no_influence():
    series = forecast.proteus("zipf_gamma")
    changed = {name: np.concatenate([counts[:150], counts[150:] * 3 + 7]) for name, counts in series.items()}
    shown: dict[int, list] = {}

    def recording(key: int):
        def planner(past, names, now, horizon_s):
            answer = planned(past, names, now, horizon_s)
            shown.setdefault(key, []).append((now, answer))
            return answer

        return planner

    score(series, recording(1), 10, STEP_S)
    score(changed, recording(2), 10, STEP_S)
    before = [(first, second) for first, second in zip(shown[1], shown[2], strict=True) if first[0] <= 150]
    assert len(before) > 10
    assert all(first == second for first, second in before)
    assert shown[1] != shown[2]
