"""The benchmark of promises: each promise is compared with what came."""

import pytest

from benchmarks import promises
from scheduler.promises.windows import LEAST_WINDOWS, Windows

pytestmark = pytest.mark.wide


def test_the_demos_load_is_promised_from_a_cold_start():
    found = promises.judge(1, 20, seed=1, windows=Windows(20, LEAST_WINDOWS)).counts
    assert [counts[0] for counts in found.values()] == [2, 2]
    assert all(held <= counts for counts, _, held in found.values())
