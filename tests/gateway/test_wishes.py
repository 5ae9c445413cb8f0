"""What queries insist on, and what they are told where it cannot be had."""

from __future__ import annotations

import pytest

from workers.gateway.wishes import Able, Unmet, devices

SMALL = Able("d0", "small", 80.0, 0.005)
BIG = Able("d1", "big", 95.0, 0.040)
UNKNOWN = Able("d2", "new", 99.0, None)


def test_whoever_can_do_both_may():
    assert devices([SMALL, BIG], None, None) == {"d0", "d1"}
    assert devices([SMALL, BIG], 90.0, None) == {"d1"}
    assert devices([SMALL, BIG], None, 0.010) == {"d0"}
    assert devices([SMALL, BIG], 80.0, 0.040) == {"d0", "d1"}


def test_what_is_not_known_to_be_too_slow_is_tried():
    assert devices([SMALL, UNKNOWN], 90.0, 0.001) == {"d2"}


def test_an_accuracy_that_nothing_has_is_told_with_the_best_there_is():
    with pytest.raises(Unmet, match=r"^parameters.min_accuracy: 97 cannot be had; the best available now is 95$"):
        devices([SMALL, BIG], 97.0, 1.0)
    with pytest.raises(Unmet, match="nothing is warm now"):
        devices([], 97.0, None)


def test_of_two_wishes_that_exclude_each_other_the_nearest_is_named_for_both():
    with pytest.raises(Unmet) as error:
        devices([SMALL, BIG], 90.0, 0.010)
    assert str(error.value) == (
        "parameters.latency_ms: 10 is too short for what can be had now; the nearest is 'big' with an accuracy of 95 "
        "in about 40 ms; within that time the best is 'small' with 80"
    )


def test_a_time_in_which_nothing_runs_is_told_with_the_quickest_there_is():
    with pytest.raises(Unmet, match=r"the nearest is 'small' with an accuracy of 80 in about 5 ms$"):
        devices([SMALL, BIG], None, 0.001)
