"""The rate profile: bursts at least once a minute.

There is never more than the least accurate variants carry.
"""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.demo import rates
from appliance.demo.capacity import capacity, throughput
from appliance.demo.manifest import applications
from appliance.demo.rates import LoadCapacity, RateProfile, arrivals

capacities = st.builds(
    lambda best, span: LoadCapacity(best, best * span),
    st.floats(0.5, 500),
    st.floats(4, 50),
)
profiles = st.builds(RateProfile, capacities, st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
times = st.floats(0, 1e6)


@given(profiles, times)
def test_rate_stays_between_the_waves_low_and_the_limit(profile, t):
    assert rates.WAVE_LOW * profile.capacity.most_accurate * (1 - 1e-9) <= profile.rate(t) <= profile.limit
    assert profile.limit == rates.LIMIT * profile.capacity.least_accurate


@given(profiles, times)
def test_any_minute_holds_a_burst_that_the_most_accurate_variant_cannot_carry(profile, t):
    rising = [u for u in (t + i * 0.25 for i in range(241)) if profile.bursting(u)]
    assert rising
    assert max(profile.rate(u) for u in rising) > rates.WAVE_HIGH * profile.capacity.most_accurate


@given(profiles, st.integers(0, 10_000))
def test_bursts_begin_less_than_a_minute_apart_and_never_touch(profile, cycle):
    this, following = profile.burst(cycle), profile.burst(cycle + 1)
    assert this.end < following.begin < this.begin + 60
    assert profile.bursting(this.begin) == this
    assert profile.bursting(this.end) is None


@given(capacities, st.integers(0, 10_000), times)
def test_two_applications_take_turns(some, seed, t):
    pair = [RateProfile(some, seed, 0.0), RateProfile(some, seed + 1, 0.5)]
    assert sum(profile.bursting(t) is not None for profile in pair) <= 1
    assert sum(profile.rate(t) for profile in pair) <= rates.LIMIT * 2 * some.least_accurate


def test_wave_is_below_and_above_what_the_most_accurate_carries():
    profile = RateProfile(LoadCapacity(20, 200))
    quiet = [profile.rate(t) for t in range(int(rates.WAVE_PERIOD_S)) if profile.bursting(t) is None]
    assert min(quiet) < 0.6 * 20 and max(quiet) > 1.05 * 20


def test_same_seed_same_rate_and_other_seed_other_bursts():
    one, same, other = (RateProfile(LoadCapacity(20, 200), seed) for seed in (1, 1, 2))
    assert [one.rate(t) for t in range(600)] == [same.rate(t) for t in range(600)]
    assert [one.burst(k) for k in range(5)] != [other.burst(k) for k in range(5)]


def test_arrivals_follow_the_rate():
    profile = RateProfile(LoadCapacity(40, 400), seed=3)
    come = list(itertools.takewhile(lambda t: t < 900, arrivals(profile, random.Random(7))))
    assert come == sorted(come)
    for begin in range(0, 900, 90):
        expected = sum(profile.rate(begin + i * 0.05) for i in range(1800)) * 0.05
        got = sum(begin <= t < begin + 90 for t in come)
        assert abs(got - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("values", [(0, 1), (1, 0), (-1, 2), (math.nan, 1), (1, math.inf)])
def test_a_capacity_must_be_positive(values):
    with pytest.raises(ValueError, match="must be a positive number of queries/s"):
        LoadCapacity(*values)


def points(*pairs: tuple[int, float]) -> list[dict]:
    return [{"batch": batch, "p50_ms": ms, "p95_ms": ms, "mean_ms": ms, "samples": 9} for batch, ms in pairs]


def test_throughput_counts_batches_within_half_the_slo():
    assert throughput(points((1, 10), (2, 16), (8, 50), (16, 101)), slo_ms=200) == pytest.approx(160)
    assert throughput(points((1, 150)), slo_ms=200) == pytest.approx(1000 / 150)


def test_the_most_accurate_counts_by_its_mean_and_the_least_accurate_by_its_p95():
    application = applications()[0]
    ranked = sorted(application.variants, key=lambda variant: variant.accuracy)
    profiles = [
        {
            "variant": v.name,
            "device_type": "cpu",
            "latencies": [{"batch": 1, "p50_ms": 40, "mean_ms": 50, "p95_ms": 100}],
        }
        for v in ranked
    ]
    found = capacity(application, profiles, ["cpu"], applications=1)
    assert (found.least_accurate, found.most_accurate) == (10, 20)


def test_capacity_shares_the_devices_evenly():
    application = applications()[0]
    ranked = sorted(application.variants, key=lambda variant: variant.accuracy)
    profiles = [
        {"variant": variant.name, "device_type": kind, "latencies": points((1, ms * slower))}
        for kind, slower in (("slow", 2), ("fast", 1))
        for variant, ms in zip(ranked, (5, 10, 20, 50), strict=True)
    ]
    found = capacity(application, profiles, ["slow", "fast"], applications=2)
    assert found.most_accurate == pytest.approx((10 + 20) / 2)
    assert found.least_accurate == pytest.approx((100 + 200) / 2)
    with pytest.raises(LookupError, match="no device is up"):
        capacity(application, profiles, [], 2)
    with pytest.raises(LookupError, match=f"{application.name}/.* has no profile on old"):
        capacity(application, profiles, ["old"], 2)
