"""Queries by shares: how close to its share each device stays.

It stays close whichever devices are able.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.dispatch.published.routing import Round

pytestmark = pytest.mark.wide

SHARES = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12)


def named(shares: list[float]) -> dict[str, float]:
    return {f"d{i}": share for i, share in enumerate(shares)}


def made(shares: dict[str, float]) -> Round:
    return Round(list(shares.items()))


@given(SHARES, st.integers(1, 300))
def test_after_any_number_of_queries_no_device_is_a_whole_one_from_its_share(shares, count):
    shares = named(shares)
    total, order, got = sum(shares.values()), made(shares), dict.fromkeys(shares, 0)
    for taken in range(1, count + 1):
        got[order.take(1, shares)] += 1
        for name, share in shares.items():
            assert got[name] - taken * share / total < 1 + 1e-4, "ahead"
            assert taken * share / total - got[name] < 1 + 1e-4, "behind"


@given(SHARES, st.lists(st.integers(1, 16), min_size=1, max_size=200))
def test_rows_keep_to_shares_within_the_largest_query(shares, sizes):
    shares = named(shares)
    total, order, got = sum(shares.values()), made(shares), dict.fromkeys(shares, 0)
    for rows in sizes:
        got[order.take(rows, shares)] += rows
    for name, share in shares.items():
        assert got[name] - sum(sizes) * share / total <= 16 + 1e-4
        assert sum(sizes) * share / total - got[name] <= 16 * len(shares)


@given(
    st.lists(st.floats(0.001, 1.0), min_size=3, max_size=12),
    st.lists(st.sampled_from([set(), {"d0"}, {"d0", "d1"}, {"d1", "unknown"}]), max_size=100),
)
def test_each_query_is_shared_by_able_devices_and_the_others_neither_gain_nor_lose(shares, excluded):
    shares = named(shares)
    order, due = made(shares), dict.fromkeys(shares, 0.0)
    for exclude in excluded:
        able = {name: share for name, share in shares.items() if name not in exclude}
        taken = order.take(1, able)
        assert taken in able
        due[taken] -= 1
        for name, share in able.items():
            due[name] += share / sum(able.values())
        assert all(abs(rows) < 3 for rows in due.values())
    assert order.take(1, {"unknown"}) is None


def test_a_device_that_every_other_query_may_not_go_to_gets_its_share_of_the_rest():
    shares = named([1.0] * 20)
    order, due = made(shares), dict.fromkeys(shares, 0.0)
    for i in range(400):
        able = {name: share for name, share in shares.items() if i % 2 or name != "d0"}
        due[order.take(1, able)] -= 1
        for name in able:
            due[name] += 1 / len(able)
        assert all(abs(rows) < 2 for rows in due.values())


def test_many_devices_keep_their_shares_as_tightly():
    shares = named([1.0 + i % 7 for i in range(300)] + [200.0])
    total, order, got = sum(shares.values()), made(shares), dict.fromkeys(shares, 0)
    for taken in range(1, 2001):
        got[order.take(1, shares)] += 1
        assert abs(got["d300"] - taken * shares["d300"] / total) < 1 + 1e-4
    assert all(abs(got[name] - 2000 * share / total) < 1 + 1e-4 for name, share in shares.items())


def test_shares_of_any_size_keep_their_order_and_no_device_is_lost():
    order = made({"a": 1e300, "b": 5e-324, "c": 1e300})
    assert [order.take(1, "abc") for _ in range(6)] == ["a", "c"] * 3
    assert [order.take(10**6, "b") for _ in range(50)] == ["b"] * 50
    assert sorted(order.take(1, "abc") for _ in range(8)).count("b") <= 1


def test_shares_hold_when_the_clock_is_set_back():
    shares = {"a": 3.0, "b": 2.0, "c": 1.0}
    order, got = made(shares), dict.fromkeys(shares, 0)
    for _ in range(3000):
        got[order.take(5000, shares)] += 1
    assert [got[name] for name in shares] == pytest.approx([1500, 1000, 500], abs=2)
