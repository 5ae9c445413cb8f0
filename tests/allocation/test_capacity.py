"""P(d,m,q)."""

import pytest

from scheduler.allocation.capacity import dedicated_capacity, profile_on
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
