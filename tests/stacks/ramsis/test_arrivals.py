"""The law of arrivals, and what round robin sends to a worker."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.stacks.ramsis.arrivals import MOST_PHASES, Stream, round_robin

pytestmark = pytest.mark.wide

rates = st.floats(0.1, 5_000)


@given(rates, st.floats(1e-5, 1.0))
def test_counts_have_probabilities_that_sum_to_one_with_the_mean_and_variance_asked_for(rate, seconds):
    stream = Stream(rate)
    most = stream.most(seconds)
    chances = stream.probabilities(most, np.array([seconds]))[0]
    number = np.arange(most + 1)
    mean = float(chances @ number)
    assert chances.sum() == pytest.approx(1, abs=1e-6)
    assert mean == pytest.approx(rate * seconds, rel=1e-4, abs=1e-6)
    assert float(chances @ (number - mean) ** 2) == pytest.approx(rate * seconds, rel=1e-2, abs=1e-5)


def test_a_moment_without_length_has_no_arrivals():
    assert Stream(5.0).probabilities(2, np.array([0.0])).tolist() == [[1.0, 0.0, 0.0]]


def test_round_robin_keeps_the_worker_s_rate_whatever_the_number_of_workers():
    for workers in (1, 7, 60, 2.5, 4_000):
        stream = round_robin(1_000.0, workers)
        assert stream.rate / stream.phases == pytest.approx(1_000 / workers) and 1 <= stream.phases <= MOST_PHASES
    assert round_robin(1_000.0, 60).phases == 60
