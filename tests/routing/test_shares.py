"""Turns by shares: how close to its share each device stays, whoever comes and goes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.dispatch.routing.shares import Round

SHARES = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12)


def named(shares: list[float]) -> dict[str, float]:
    return {f"d{i}": share for i, share in enumerate(shares)}


def present(shares: dict[str, float]) -> Round:
    made = Round(list(shares.items()))
    made.attend(shares)
    return made


@settings(max_examples=100, deadline=None)
@given(SHARES, st.integers(1, 300))
def test_after_any_number_of_queries_no_device_is_a_whole_one_from_its_share(shares, count):
    shares = named(shares)
    total, made, got = sum(shares.values()), present(shares), dict.fromkeys(shares, 0)
    for taken in range(1, count + 1):
        got[made.take(1)] += 1
        for name, share in shares.items():
            assert got[name] - taken * share / total < 1 + 1e-4, "ahead"
            assert taken * share / total - got[name] < 1 + 1e-4, "behind"


@settings(max_examples=60, deadline=None)
@given(SHARES, st.lists(st.integers(1, 16), min_size=1, max_size=200))
def test_rows_keep_to_shares_within_the_largest_query(shares, sizes):
    shares = named(shares)
    total, made, got = sum(shares.values()), present(shares), dict.fromkeys(shares, 0)
    for rows in sizes:
        got[made.take(rows)] += rows
    for name, share in shares.items():
        assert got[name] - sum(sizes) * share / total <= 16 + 1e-4
        assert sum(sizes) * share / total - got[name] <= 16 * len(shares)


@settings(max_examples=100, deadline=None)
@given(SHARES, st.lists(st.tuples(st.integers(0, 11), st.booleans()), min_size=1, max_size=40))
def test_whoever_comes_and_goes_those_who_are_there_get_their_shares_at_once(shares, changes):
    shares = named(shares)
    made, here = present(shares), set(shares)
    for number, comes in changes:
        name = f"d{number % len(shares)}"
        here = here | {name} if comes else here - {name}
        made.attend(sorted(here))
        if not here:
            assert made.take(1) is None
            continue
        total, got = sum(shares[name] for name in here), dict.fromkeys(here, 0)
        for taken in range(1, 31):
            got[made.take(1)] += 1
            for name in here:
                # What it was ahead or behind at most, when the others changed, and now.
                assert abs(got[name] - taken * shares[name] / total) < 3


def test_a_device_that_comes_and_goes_again_and_again_gets_no_more_than_its_share():
    made = present({"a": 1.0, "b": 1.0})
    got = {"a": 0, "b": 0}
    for turn in range(200):
        made.attend(["a", "b"] if turn % 2 else ["b"])
        got[made.take(1)] += 1
    assert got["a"] <= 50


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0.001, 1.0), min_size=3, max_size=12),
    st.lists(st.sampled_from([(), ("d0",), ("d0", "d1"), ("d1", "nobody", "d1")]), max_size=100),
)
def test_each_query_is_shared_by_those_it_may_go_to_and_the_others_neither_gain_nor_lose(shares, excluded):
    shares = named(shares)
    made, due = present(shares), dict.fromkeys(shares, 0.0)
    for exclude in excluded:
        able = {name: share for name, share in shares.items() if name not in exclude}
        taken = made.take(1, exclude)
        assert taken in able
        due[taken] -= 1
        for name, share in able.items():
            due[name] += share / sum(able.values())
        assert all(abs(rows) < 3 for rows in due.values())
    assert made.take(1, tuple(shares)) is None


def test_a_device_that_every_other_query_may_not_go_to_gets_its_share_of_the_rest():
    shares = named([1.0] * 20)
    made, due = present(shares), dict.fromkeys(shares, 0.0)
    for turn in range(400):
        able = {name: share for name, share in shares.items() if turn % 2 or name != "d0"}
        due[made.take(1, () if turn % 2 else ("d0",))] -= 1
        for name in able:
            due[name] += 1 / len(able)
        assert all(abs(rows) < 2 for rows in due.values())


def test_with_many_devices_none_is_two_queries_from_its_share():
    shares = named([1.0 + i % 7 for i in range(300)] + [200.0])
    total, made, got = sum(shares.values()), present(shares), dict.fromkeys(shares, 0)
    for taken in range(1, 2001):
        got[made.take(1)] += 1
        assert abs(got["d300"] - taken * shares["d300"] / total) < 2
    assert all(abs(got[name] - 2000 * share / total) < 2 for name, share in shares.items())


def test_shares_of_any_size_keep_their_order_and_nobody_is_lost():
    made = present({"a": 1e300, "b": 5e-324, "c": 1e300})
    assert [made.take(1) for _ in range(6)] == ["a", "c"] * 3
    made.attend(["b"])
    assert [made.take(10**6) for _ in range(50)] == ["b"] * 50
    made.attend(["a", "b", "c"])
    assert sorted(made.take(1) for _ in range(8)).count("b") <= 1


def test_shares_hold_on_when_clocks_are_set_back():
    shares = {"a": 3.0, "b": 2.0, "c": 1.0}
    made, got = present(shares), dict.fromkeys(shares, 0)
    for _ in range(3000):
        got[made.take(5000)] += 1
    assert [got[name] for name in shares] == pytest.approx([1500, 1000, 500], abs=2)
