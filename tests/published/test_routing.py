"""Routers: how close to its share each device stays, and what corrects shares."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulation.stacks import ROUTERS
from workers.dispatch.published.routing import Round

pytestmark = pytest.mark.wide

BOTH = pytest.mark.parametrize("name", [name for name in ROUTERS if name != "uniform"])


def made(name: str, **shares: float):
    router = ROUTERS[name](1)
    router.set_routes({"app": list(shares.items())})
    return router


def picks(router, count: int, able="abc", rows: int = 1) -> list[str | None]:
    return [router.pick("app", rows, able, 1.0, lambda device: 0.5, lambda device: 0) for _ in range(count)]


def late(router, able="abc", rows: int = 1, **expected_s: float) -> str | None:
    """A pick with a second left."""
    return router.pick("app", rows, able, 1.0, expected_s.__getitem__, lambda device: 0)


@BOTH
class TestShares:
    def test_they_are_spread_smoothly(self, name):
        assert picks(made(name, a=5, b=1, c=1), 7) == ["a", "a", "b", "a", "c", "a", "a"]

    def test_equal_shares_take_turns_in_the_order_of_the_routes(self, name):
        assert picks(made(name, b=0.5, a=0.5), 4) == ["b", "a", "b", "a"]

    def test_the_same_routes_again_do_not_start_anew(self, name):
        router = made(name, a=1, b=1)
        assert picks(router, 1) == ["a"]
        router.set_routes({"app": [("a", 1), ("b", 1)]})
        assert picks(router, 1) == ["b"]

    def test_new_routes_hold_from_the_next_pick(self, name):
        router = made(name, a=1, b=1)
        router.set_routes({"app": [("b", 1)]})
        assert picks(router, 3) == ["b", "b", "b"]
        router.set_routes({})
        assert picks(router, 1) == [None]


class TestActiveFirst:
    def test_a_late_device_gives_its_query_to_the_one_that_answers_first(self):
        router = made("active-first", a=8, b=1, c=1)
        assert late(router, a=2.0, b=0.9, c=0.8) == "c"
        assert late(router, able="ab", a=2.0, b=0.9, c=0.8) == "b"

    def test_ties_go_to_the_first_in_the_routes(self):
        assert late(made("active-first", a=1, b=1, c=1), a=2.0, b=0.5, c=0.5) == "b"

    def test_shares_hold_while_the_next_device_is_in_time(self):
        assert late(made("active-first", a=8, b=1, c=1), a=1.0, b=0.1, c=0.1) == "a"

    def test_shares_hold_where_no_device_is_in_time(self):
        assert late(made("active-first", a=8, b=1, c=1), a=3.0, b=2.0, c=2.0) == "a"

    def test_a_device_that_was_passed_over_gets_no_burst_afterwards(self):
        router = made("active-first", a=1, b=1)
        assert {late(router, a=9.0, b=0.5) for _ in range(20)} == {"b"}
        assert Counter(picks(router, 10)) == {"a": 5, "b": 5}

    def test_shares_alone_ask_for_no_expectation(self):
        assert late(made("shares", a=8, b=1)) == "a"


SHARES = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12)


def named(shares: list[float]) -> dict[str, float]:
    return {f"d{i}": share for i, share in enumerate(shares)}


def round_of(shares: dict[str, float]) -> Round:
    return Round(list(shares.items()))


@given(SHARES, st.lists(st.integers(1, 16), min_size=1, max_size=200))
def test_rows_keep_to_shares_within_the_largest_query(shares, sizes):
    shares = named(shares)
    total, order, got = sum(shares.values()), round_of(shares), dict.fromkeys(shares, 0)
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
    order, due = round_of(shares), dict.fromkeys(shares, 0.0)
    for exclude in excluded:
        able = {name: share for name, share in shares.items() if name not in exclude}
        taken = order.take(1, able)
        assert taken in able
        due[taken] -= 1
        for name, share in able.items():
            due[name] += share / sum(able.values())
        assert all(abs(rows) < 3 for rows in due.values())
    assert order.take(1, {"unknown"}) is None


def test_shares_of_any_size_keep_their_order_and_no_device_is_lost():
    order = round_of({"a": 1e300, "b": 5e-324, "c": 1e300})
    assert [order.take(1, "abc") for _ in range(6)] == ["a", "c"] * 3
    assert [order.take(10**6, "b") for _ in range(50)] == ["b"] * 50
    assert sorted(order.take(1, "abc") for _ in range(8)).count("b") <= 1
