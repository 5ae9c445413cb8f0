"""Sums of seconds by bucket: nothing is lost, nothing counts twice, and a gap stays a gap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.history import figures
from scheduler.history.folding import (
    APPLICATION,
    TIERS,
    Bucket,
    Counted,
    add_gateway_second,
    add_node_second,
    application_sums,
    coarsened,
    device_sums,
)
from scheduler.history.packing import pack, table, totals, unpack

NAMES = ("digits", "faces", "speech")
small = st.integers(0, 1000)
counts = st.fixed_dictionaries(
    {name: small for name in APPLICATION[:6]}
    | {"accuracy_sum": st.floats(0, 1e5), "normalized_sum": st.floats(0, 1e5)}
    | {"p50_ms": st.floats(0, 1e4), "p95_ms": st.floats(0, 1e4)}
    | {"by_variant": st.dictionaries(st.sampled_from(["quick", "best"]), st.integers(1, 1000))}
)
seconds = st.lists(
    st.tuples(st.integers(0, 20_000), st.dictionaries(st.sampled_from(NAMES), counts)), min_size=1, max_size=30
)


def folded(found) -> dict[int, Bucket]:
    buckets: dict[int, Bucket] = {}
    for t, applications in found:
        bucket = buckets.setdefault(t - t % 10, Bucket())
        bucket.seconds += 1
        add_gateway_second(bucket, {"applications": applications})
    return buckets


@given(seconds)
def test_sums_are_the_same_in_all_tiers(found):
    buckets = folded(found)
    whole = Bucket()
    for _, applications in found:
        whole.seconds += 1
        add_gateway_second(whole, {"applications": applications})
    for tier in TIERS:
        merged = Bucket()
        for bucket in coarsened(buckets.items(), tier.resolution).values():
            merged.merge(bucket)
        assert merged == whole


@given(seconds, st.randoms())
def test_the_order_in_which_buckets_are_merged_does_not_matter(found, random):
    buckets = list(folded(found).items())
    shuffled = buckets.copy()
    random.shuffle(shuffled)
    assert coarsened(buckets, 3600) == coarsened(shuffled, 3600)


@given(seconds)
def test_a_bucket_is_the_same_after_it_was_stored(found):
    for bucket in coarsened(folded(found).items(), 60).values():
        add_node_second(bucket, {"devices": [{"device": "box/cpu0", "busy": 0.5, "profiling": 0, "queued_rows": 3}]})
        names: dict[tuple[str, str], int] = {}
        packed = pack(bucket, lambda *key, names=names: names.setdefault(key, len(names) + 1))
        assert unpack(packed, {number: name for (_, name), number in names.items()}) == bucket
        assert totals([packed.total])[0].tolist() == bucket.total()


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 1000)), max_size=40), st.integers(1, 40))
def test_points_hold_what_was_added_and_are_nothing_where_nothing_was(rows, points):
    on = figures.grid(100, 2900, 10, points)
    sums = figures.Sums(on, APPLICATION)
    arrived = np.zeros((len(rows), len(APPLICATION)))
    arrived[:, 0] = [count for _, count in rows]
    sums.add(np.array([at for at, _ in rows], int), np.ones(len(rows), int), arrived)
    inside = [(at, count) for at, count in rows if on.start <= at < on.end]
    assert sums.values[:, 0].sum() == sum(count for _, count in inside)
    covered = {(at - on.start) // on.step for at, _ in inside}
    demand = figures.application_series(sums)["demand"]
    assert {index for index, value in enumerate(demand) if value is not None} == covered


@given(st.integers(0, 10**9), st.integers(1, 10**8), st.sampled_from([1, 10, 60, 3600]), st.integers(1, 1500))
def test_a_grid_covers_the_range_with_at_most_so_many_points(begin, length, resolution, points):
    on = figures.grid(begin, begin + length, resolution, points)
    assert on.start <= begin and on.end >= begin + length
    assert on.points <= points + 1
    assert on.step % resolution == 0 and on.start % on.step == 0


@given(st.lists(st.floats(1, 900), max_size=50))
def test_a_second_is_counted_once_whoever_reports_it(moments):
    counted, again = Counted("boot", 0), 0
    first = sum(counted.new("boot", moment) for moment in moments)
    for moment in moments:
        again += Counted.of(counted.state()).new("boot", moment)
    assert again == 0
    assert first == len({int(moment - early) for moment in moments for early in (0.0, 0.5)})


def test_reports_that_come_a_little_early_or_late_leave_no_gap():
    counted = Counted("boot", 0)
    covered = sum(counted.new("boot", 100 + second + (0.02 if second % 2 else -0.02)) for second in range(1, 61))
    assert covered in (60, 61)


def test_seconds_of_another_boot_are_counted_anew():
    counted = Counted()
    assert counted.new("first", 50.6) == 1
    assert counted.new("second", 50.6) == 1


def test_a_figure_that_is_not_reported_is_nothing():
    sums = application_sums({"late": 2})
    assert sums == [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
    assert device_sums({"device": "x", "busy": 0.25})[:2] == [1, 2500]
    assert table(b"", 3)[1].shape == (3, 0)


def test_ratios_are_weighted_by_queries_and_peaks_are_kept():
    bucket = Bucket(seconds=2)
    fast = {"arrived": 90, "in_time": 90, "normalized_sum": 9000.0, "p95_ms": 10.0}
    slow = {"arrived": 10, "in_time": 5, "late": 5, "normalized_sum": 400.0, "p95_ms": 110.0}
    for second in (fast, slow):
        add_gateway_second(bucket, {"applications": {"digits": second}})
    on = figures.Grid(0, 10, 1)
    sums = figures.Sums(on, APPLICATION)
    sums.add(np.array([0]), np.array([2]), np.array([bucket.total()]))
    shown = figures.application_series(sums)
    assert shown["demand"] == [50.0]
    assert shown["violations"] == [5.0]
    assert shown["accuracy"] == [round(9400 / 95, 3)]
    assert shown["p95_ms"] == [20.0]
    assert shown["p95_ms_highest"] == [110.0]
