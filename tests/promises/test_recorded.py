"""Arrivals made of recorded seconds."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.promises.recorded import LEAST_S, RECORD_S, Recorded, imagined, record, trace

COUNTS = st.lists(st.integers(0, 20), min_size=1, max_size=12)


@given(COUNTS, st.integers(1, 4), st.integers(0, 3), st.integers(0, 99))
def test_a_window_of_the_whole_record_has_all_its_arrivals(counts, rows, factor, seed):
    found = trace(Recorded({"a": tuple(counts)}, {"a": rows}), len(counts), {"a": factor}, seed)
    assert len(found) == sum(counts) * rows * factor
    assert list(found.times) == sorted(found.times)
    assert all(0 <= at < len(counts) for at in found.times)


@given(COUNTS, st.integers(0, 99))
def test_the_same_seed_gives_the_same_window_whatever_others_do(counts, seed):
    both = Recorded({"a": tuple(counts), "b": (3,) * len(counts)}, {})
    once, again = (trace(both, 5, {"b": factor}, seed) for factor in (1.0, 2.0))
    of_a = [[at for at, who in zip(t.times, t.applications, strict=True) if who == 0] for t in (once, again)]
    assert of_a[0] == of_a[1]


def test_seconds_keep_their_order_and_applications_theirs_together():
    ramp = tuple(range(0, 200, 10))
    found = trace(Recorded({"a": ramp, "b": ramp}, {}), 5, {}, seed=4)
    for who in (0, 1):
        counts = [
            sum(int(at) == s and w == who for at, w in zip(found.times, found.applications, strict=True))
            for s in range(5)
        ]
        assert all((after - before) % 200 == 10 for before, after in pairwise(counts))


def test_only_the_newest_seconds_count_and_rows_are_means():
    seconds = [(t, {"a": (2.0, 6.0)}) for t in range(RECORD_S + 50)]
    found = record(seconds, ["a", "b"])
    assert found.seconds == RECORD_S
    assert found.rows == {"a": 3.0, "b": 1.0}
    assert found.rate("a") == pytest.approx(6.0)
    assert found.rate("b") == 0.0
    history = found.history({"a": 2.0})
    assert history[-1] == (-1, {"a": 12.0, "b": 0.0})


@given(st.integers(0, RECORD_S), COUNTS)
def test_silence_before_a_load_is_no_part_of_the_record(silent, counts):
    seconds = [(t, {"a": (0.0, 0.0), "gone": (1.0, 1.0)}) for t in range(silent)]
    seconds += [(silent + t, {"a": (float(came), float(came))}) for t, came in enumerate([1, *counts])]
    found = record(seconds, ["a", "b"])
    assert found.queries["a"] == tuple(map(float, [1, *counts]))
    assert found.queries["b"] == (0.0,) * (1 + len(counts))
    assert record(seconds[:silent], ["a"]).seconds == 0


def test_an_application_of_which_nothing_is_recorded_gets_poisson_arrivals():
    found = imagined(Recorded({}, {}), {"a": 50.0})
    assert found.seconds == LEAST_S
    assert 20 < found.rate("a") < 80
    assert len(set(found.queries["a"])) > 1
    kept = imagined(Recorded({"a": (7.0,) * 20, "b": (0.0,) * 20}, {}), {"a": 50.0, "b": 1000.0})
    assert kept.queries["a"] == (7.0,) * 20
    assert 900 < kept.rate("b") < 1100
