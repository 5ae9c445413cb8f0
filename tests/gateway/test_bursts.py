"""A gateway says when demand leaves the plan's band, and does not repeat itself."""

from __future__ import annotations

import itertools

from workers.gateway.bursts import BurstDetector
from workers.gateway.network import RttEstimator
from workers.protocol.specs import Band


def run(detector: BurstDetector, rates: list[tuple[float, float]], start: float = 100.0, rows: int = 1):
    """Run a detector over arrivals at each (seconds, queries/s) in turn.

    It is checked five times a second.

    Returns:
        (time, burst) of each burst reported, the time in seconds from the start.
    """
    found, now = [], start
    for seconds, rate in rates:
        due, end = 0.0, now + seconds
        while now < end - 1e-9:
            due += rate / 100
            while due >= 1:
                detector.arrived("a", rows, now)
                due -= 1
            now += 0.01
            if round(now * 100) % 20 == 0:
                found += [(round(now - start, 2), burst) for burst in detector.check(now)]
    return found


def planned(low: float, high: float, version: int = 7) -> BurstDetector:
    detector = BurstDetector()
    detector.set_plan({"a": Band(low, high)}, version, 100.0)
    return detector


def test_demand_inside_the_band_is_quiet():
    assert run(planned(20, 60), [(30, 40)]) == []


def test_a_burst_is_reported_within_a_second_and_once():
    found = run(planned(0, 60), [(5, 40), (5, 100)])
    assert 5 < found[0][0] <= 6.2
    assert all(burst.plan_version == 7 and burst.rate > 60 for _, burst in found)
    # The first report may come while the second's rate still climbs; after that only a growth of 20% counts.
    assert len(found) <= 3
    assert run(planned(0, 60), [(20, 61)])[1:] == []


def test_a_rate_that_grows_is_reported_again():
    found = run(planned(0, 60), [(3, 70), (3, 140), (3, 280)])
    times = [at for at, _ in found]
    assert any(at > 3 for at in times)
    assert any(at > 6 for at in times)
    assert all(b - a >= 1.0 - 1e-6 for a, b in itertools.pairwise(times))


def test_a_new_plan_is_reported_anew():
    detector = planned(0, 60)
    assert run(detector, [(5, 100)])
    detector.set_plan({"a": Band(0, 80)}, 8, 105.0)
    assert [burst.plan_version for _, burst in run(detector, [(1, 100)], 105.0)] == [8]


def test_a_surge_is_reported_before_its_second_is_over():
    detector = BurstDetector()
    detector.set_plan({"a": Band(0, 60, surge=90)}, 7, 100.0)
    found = run(detector, [(5, 40), (1, 130)])
    # By then the last second's rate is not above 60 yet.
    assert found[0][0] < 5.4 and found[0][1].rate > 90


def test_a_rise_that_lasts_is_reported_though_no_second_is_above_the_band():
    detector = BurstDetector()
    detector.set_plan({"a": Band(0, 60, rise=50)}, 7, 100.0)
    found = run(detector, [(5, 40), (5, 55)])
    assert 5 < found[0][0] < 8.3 and 50 < found[0][1].rate <= 55


def test_what_rose_before_the_plan_is_not_held_against_it():
    detector = planned(0, 100)
    run(detector, [(5, 80)])
    detector.set_plan({"a": Band(0, 100, rise=50)}, 8, 105.0)
    assert run(detector, [(10, 40)], 105.0) == []


def test_a_few_large_queries_are_no_burst():
    assert run(planned(0, 60), [(5, 3)], rows=64) == []


def test_quiet_is_reported_after_ten_seconds():
    found = run(planned(20, 60), [(12, 40), (15, 1)])
    assert found
    # The mean of ten seconds falls below the band half way through them.
    assert 16 < found[0][0] < 22
    assert found[0][1].rate < 20


def test_no_traffic_at_all_is_quiet_too():
    assert run(planned(20, 60), [(9, 0)]) == []
    assert len(run(planned(20, 60), [(30, 0)])) == 1


def test_the_margin_follows_a_high_quantile_and_is_bounded():
    margin = RttEstimator()
    assert margin.seconds == 0.002
    for i in range(256):
        margin.add(0.010 if i % 10 == 0 else 0.001)
    assert margin.seconds == 0.010
    # All of a window, and until it is looked at again.
    for _ in range(256 + 64):
        margin.add(3.0)
    assert margin.seconds == 0.2
    for _ in range(256 + 64):
        margin.add(-1.0)
    assert margin.seconds == 0.0
