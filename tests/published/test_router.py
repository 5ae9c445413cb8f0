"""Routers: by the plan's shares, and by when devices are expected to answer.

The latter correct the shares.
"""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler.simulation.stacks import ROUTERS

pytestmark = pytest.mark.wide

BOTH = pytest.mark.parametrize("name", [name for name in ROUTERS if name != "uniform"])


def made(name: str, **shares: float):
    router = ROUTERS[name](1)
    router.set_routes({"app": list(shares.items())})
    return router


def picks(router, count: int, able="abc", rows: int = 1) -> list[str | None]:
    """Picks where every device answers in time."""
    return [router.pick("app", rows, able, 1.0, lambda device: 0.5, lambda device: 0) for _ in range(count)]


def late(router, able="abc", rows: int = 1, **expected_s: float) -> str | None:
    """A pick with a second left."""
    return router.pick("app", rows, able, 1.0, expected_s.__getitem__, lambda device: 0)


@BOTH
class TestShares:
    def test_they_are_spread_smoothly(self, name):
        assert picks(made(name, a=5, b=1, c=1), 7) == ["a", "b", "a", "a", "c", "a", "a"]

    def test_equal_shares_take_turns_in_the_order_of_the_routes(self, name):
        assert picks(made(name, b=0.5, a=0.5), 4) == ["b", "a", "b", "a"]

    def test_rows_are_shared_not_queries(self, name):
        router, rows = made(name, a=1, b=1), Counter()
        for i in range(300):
            size = 9 if i % 2 else 1
            rows[picks(router, 1, rows=size)[0]] += size
        assert abs(rows["a"] - rows["b"]) <= 9

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

    def test_only_able_devices_with_a_share_are_chosen(self, name):
        router = made(name, a=2, b=1, c=1, spare=0)
        assert Counter(picks(router, 100, able="bc")) == {"b": 50, "c": 50}
        assert picks(router, 1, able=("spare",)) == [None]
        assert picks(router, 1, able=()) == [None]


class TestLeastCompletion:
    def test_a_late_device_gives_its_query_to_the_one_that_answers_first(self):
        router = made("least-completion", a=8, b=1, c=1)
        assert late(router, a=2.0, b=0.9, c=0.8) == "c"
        assert late(router, able="ab", a=2.0, b=0.9, c=0.8) == "b"

    def test_ties_go_to_the_first_in_the_routes(self):
        assert late(made("least-completion", a=1, b=1, c=1), a=2.0, b=0.5, c=0.5) == "b"

    def test_shares_hold_while_the_next_device_is_in_time(self):
        assert late(made("least-completion", a=8, b=1, c=1), a=1.0, b=0.1, c=0.1) == "a"

    def test_shares_hold_where_no_device_is_in_time(self):
        assert late(made("least-completion", a=8, b=1, c=1), a=3.0, b=2.0, c=2.0) == "a"

    def test_a_device_that_was_passed_over_gets_no_burst_afterwards(self):
        router = made("least-completion", a=1, b=1)
        assert {late(router, a=9.0, b=0.5) for _ in range(20)} == {"b"}
        assert Counter(picks(router, 10)) == {"a": 5, "b": 5}

    def test_shares_alone_ask_for_no_expectation(self):
        assert late(made("shares", a=8, b=1)) == "a"


def test_the_shortest_queue_gets_a_query_and_ties_follow_the_shares():
    router = ROUTERS["shortest-queue"](1)
    router.set_routes({"app": [("a", 1.0), ("b", 1.0), ("c", 1.0)]})

    def pick(**rows: int) -> str | None:
        return router.pick("app", 1, set(rows), 1.0, lambda device: 0.1, rows.__getitem__)

    assert [pick(a=0, b=0, c=0) for _ in range(6)] == ["a", "b", "c"] * 2
    assert pick(a=2, b=1, c=3) == "b"
    assert [pick(a=1, b=1, c=1) for _ in range(2)] == ["b", "c"]
    assert pick(b=5, c=4) == "c"
    assert router.pick("app", 1, set(), 1.0, lambda device: 0.1, lambda device: 0) is None
