"""The benchmark of promises.

Constant arrivals are promised exactly, and a change shows as a miss.
"""

import pytest

from benchmarks import promises
from scheduler.promises.windows import LEAST_WINDOWS, Windows

pytestmark = pytest.mark.wide
FEW = Windows(20, LEAST_WINDOWS)


def test_steady_arrivals_keep_every_promise():
    found = promises.judge([40.0] * 400, 2, 60, windows=FEW)
    assert found["violations"] == (2, 2, 2)
    assert found["accuracy"][0] == 2


def test_arrivals_beyond_all_devices_break_it():
    found = promises.judge([40.0] * 120 + [3000.0] * 60, 1, 60, windows=FEW)
    assert found["violations"] == (1, 0, 0)


def test_the_demos_load_is_promised_from_a_cold_start():
    found = promises.judge_demo(1, 20, seed=1, windows=FEW)
    assert [counts[0] for counts in found.values()] == [2, 2]
    assert all(held <= counts for counts, _, held in found.values())
