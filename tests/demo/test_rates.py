"""The rate profile: bursts at least once a minute, never above what the least accurate variants carry."""

import itertools
import math
import random

from hypothesis import given
from hypothesis import strategies as st

from appliance.demo import rates
from appliance.demo.rates import LoadCapacity, RateProfile, arrivals

capacities = st.builds(lambda best, span: LoadCapacity(best, best * span), st.floats(0.5, 500), st.floats(4, 50))
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
