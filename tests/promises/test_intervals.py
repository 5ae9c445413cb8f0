"""Prediction intervals and their correction by past promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.promises.intervals import COVERAGE, LEAST_PAST, WINDOWS, Interval, correction, of_windows, widened

NUMBERS = st.floats(-100, 100, allow_nan=False)


@given(st.lists(NUMBERS, min_size=WINDOWS + 1, max_size=WINDOWS + 1, unique=True))
def test_each_of_twenty_windows_but_two_lies_within_the_interval_of_the_others(values):
    held = sum(
        of_windows(values[:place] + values[place + 1 :]).holds(value)
        for place, value in enumerate(values)
        if min(abs(value - other) for other in values if other != value) > 1e-6
    )
    close = sum(min(abs(value - other) for other in values if other != value) <= 1e-6 for value in values)
    assert held + close >= COVERAGE * len(values)
    assert held <= COVERAGE * len(values)


@given(st.lists(NUMBERS, min_size=1, max_size=WINDOWS))
def test_an_interval_holds_the_windows_that_it_is_made_of(values):
    found = of_windows(values)
    assert all(found.holds(value) for value in values)


def test_few_windows_make_a_wider_interval():
    few, many = of_windows([1.0, 2.0, 3.0]), of_windows([1.0, 2.0, 3.0] * 7)
    assert few.low < many.low and few.high > many.high


@given(st.lists(NUMBERS, min_size=LEAST_PAST, max_size=60))
def test_the_correction_would_have_held_the_share_of_past_promises(misses):
    by = correction(misses)
    assert sum(miss <= by for miss in misses) >= COVERAGE * len(misses)


def test_without_a_past_nothing_is_corrected():
    assert correction([5.0] * (LEAST_PAST - 1)) == 0.0
    assert correction([5.0] * LEAST_PAST) == 5.0


@given(NUMBERS, st.floats(0, 50), NUMBERS)
def test_a_widened_interval_is_never_inside_out(low, width, by):
    found = widened(Interval(low, low + width), by)
    assert found.low <= found.high
    if by >= 0:
        assert found.low == pytest.approx(low - by) and found.high == pytest.approx(low + width + by)


def test_how_far_a_value_lies_outside():
    assert Interval(2.0, 4.0).outside(5.0) == 1.0
    assert Interval(2.0, 4.0).outside(0.5) == 1.5
    assert Interval(2.0, 4.0).outside(2.5) == -0.5
    assert Interval(-1.0, 4.0).clipped(0.0, 1.0) == Interval(0.0, 1.0)
