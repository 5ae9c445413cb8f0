"""Prediction intervals and their correction by past promises."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.promises.intervals import (
    COVERAGE,
    LEAST_PAST,
    WINDOWS,
    Interval,
    correction,
    may_miss,
    of_windows,
    widened,
)

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


def test_few_windows_make_a_wider_interval():
    few, many = of_windows([1.0, 2.0, 3.0]), of_windows([1.0, 2.0, 3.0] * 7)
    assert few.low < many.low and few.high > many.high


@given(st.lists(NUMBERS, min_size=2, max_size=WINDOWS), st.floats(0.1, 40), st.floats(0.1, 40))
def test_a_record_with_room_for_fewer_windows_makes_no_narrower_interval(values, one, other):
    few, many = of_windows(values, min(one, other)), of_windows(values, max(one, other))
    assert few.low <= many.low + 1e-9 and few.high >= many.high - 1e-9
    assert all(many.holds(value) for value in values)
    assert of_windows(values, WINDOWS) == of_windows(values)


def test_windows_of_a_short_record_have_students_interval_for_as_many_as_it_has_room_for():
    values = [float(value) for value in range(WINDOWS)]
    found = of_windows(values, 7.5)
    # 1.943: the 95% quantile for six degrees of freedom.
    off = 1.943 * statistics.stdev(values) * math.sqrt(1 + 1 / 7.5)
    assert found == pytest.approx((9.0 - off, 9.0 + off))


INTERVALS = st.tuples(st.floats(0, 100), st.floats(0, 100)).map(lambda ends: Interval(min(ends), max(ends)))


@given(st.lists(st.tuples(INTERVALS, st.floats(0, 100)), max_size=80))
def test_whatever_comes_no_more_than_one_in_ten_misses_and_six_more(past):
    misses, held = [], []
    for simulated, came in past:
        promised = widened(simulated, correction(misses, may_miss(held))).clipped(0.0, 100.0)
        assert promised.low <= promised.high
        misses.append(simulated.outside(came))
        held.append(promised.holds(came))
        assert held.count(False) <= (1 - COVERAGE) * len(held) + 6


def test_misses_leave_fewer_and_a_long_time_without_them_is_soon_forgotten():
    assert may_miss([]) == pytest.approx(1 - COVERAGE)
    assert may_miss([False]) < may_miss([]) < may_miss([True])
    assert may_miss([True] * 1000 + [False] * 12) < 0
    assert correction([1.0] * 50, 0.0) == math.inf
    assert widened(Interval(2.0, 3.0), math.inf).clipped(0.0, 100.0) == Interval(0.0, 100.0)


@given(st.lists(NUMBERS, min_size=LEAST_PAST, max_size=60), st.floats(0.01, 0.2), st.floats(0.01, 0.2))
def test_the_fewer_may_miss_the_wider(misses, one, other):
    assert correction(misses, min(one, other)) >= correction(misses, max(one, other))


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
