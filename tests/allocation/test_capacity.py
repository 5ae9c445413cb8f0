"""P(d,m,q) and the cost of slices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.allocation.capacity import dedicated_capacity, profile_on, slice_cost
from scheduler.allocation.problem import CandidateVariant, DeviceResources, LatencyProfile

from .worlds import line


def test_the_fastest_batch_counts_not_the_largest():
    profile = LatencyProfile(((1, 0.020), (2, 0.024), (4, 0.030), (8, 0.090)))
    capacity = dedicated_capacity(profile, 0.3)
    assert (capacity.batch, capacity.latency_s) == (4, 0.030)
    assert capacity.rate == pytest.approx(4 / 0.030)


def test_a_batch_may_take_half_of_the_slo_and_no_more():
    profile = LatencyProfile(((1, 0.010), (8, 0.050)))
    assert dedicated_capacity(profile, 0.100).batch == 8
    assert dedicated_capacity(profile, 0.0999).batch == 1
    assert dedicated_capacity(profile, 0.0199) is None


def test_of_equally_fast_batches_the_smaller_is_taken():
    assert dedicated_capacity(LatencyProfile(((1, 0.01), (2, 0.02), (4, 0.04))), 1).batch == 1


def test_what_does_not_fit_into_memory_has_no_profile_there():
    variant = CandidateVariant("m", "q", 100, {"cpu": line(1, 1, memory=100)})
    assert profile_on(variant, DeviceResources("d", "cpu", 100)) is not None
    assert profile_on(variant, DeviceResources("d", "cpu", 99)) is None
    assert profile_on(variant, DeviceResources("d", "gpu")) is None


def test_a_line_is_recovered_as_it_is():
    cost = slice_cost(line(4, 3), 1.0)
    assert (cost.alpha_s, cost.beta_s, cost.max_rows) == (pytest.approx(0.004), pytest.approx(0.003), 8)


def test_turns_stop_before_the_first_batch_that_takes_too_long():
    profile = LatencyProfile(((1, 0.010), (2, 0.030), (4, 0.020)))
    assert slice_cost(profile, 0.025).max_rows == 1
    assert slice_cost(profile, 0.009) is None


@given(
    st.dictionaries(st.integers(1, 64), st.floats(0.001, 1), min_size=1, max_size=7),
    st.floats(0.001, 1),
)
def test_a_turn_is_never_underestimated(latencies, limit_s):
    points = tuple(sorted(latencies.items()))
    cost = slice_cost(LatencyProfile(points), limit_s)
    if cost is None:
        assert points[0][1] > limit_s
        return
    assert cost.alpha_s >= 0 and cost.beta_s >= 0
    for batch, latency_s in points:
        if batch <= cost.max_rows:
            assert latency_s <= limit_s
            assert cost.seconds(batch) >= latency_s * (1 - 1e-6)
    assert cost.seconds(1) >= points[0][1] * (1 - 1e-6)
