"""Queries that arrive together are scheduled together."""

from __future__ import annotations

import random

import pytest

from workers.dispatch.binding import QueryClass
from workers.dispatch.late.interarrival import SHORTEST_S

from .driver import ANSWERED, DISPATCHED, REFUSED, WAITING, World, menu, option

#: a row alone takes 10 ms, eight together 20 ms
BATCHES = option("only", 90, {1: 0.01, 8: 0.02})


def world(rtt_s: float = 0.0, **devices) -> World:
    made = World({"q": 0.3}, devices or {"d0": {"q": menu(BATCHES)}}, rtt_s)
    made.settle()
    return made


def alone(made: World, seconds: float = 0.5) -> None:
    """Enough queries far apart that no company is expected any more."""
    for _ in range(30):
        query = made.submit("q")
        made.advance(seconds)
        assert query.state == ANSWERED


def test_an_idle_device_runs_what_came_together_as_one_batch():
    made = world()
    alone(made)
    queries = made.submit_together([("q", 1, None, None)] * 5)
    made.advance(0.1)
    assert {query.state for query in queries} == {ANSWERED}
    assert len({id(query.batch) for query in queries}) == 1


def test_what_is_too_much_for_a_batch_fills_the_next_and_unlike_ones_stay_apart():
    made = world(d0={"q": menu(BATCHES)}, d1={"q": menu(BATCHES)})
    queries = made.submit_together([("q", 1, None, None)] * 10 + [("q", 1, None, "long")] * 2)
    made.advance(1.0)
    assert {query.state for query in queries} == {ANSWERED}
    assert sorted(made_of.rows for made_of in {id(query.batch): query.batch for query in queries}.values()) == [2, 2, 8]
    assert all(len({query.key for query in batch.queries}) == 1 for batch in {query.batch for query in queries})


def test_of_those_that_came_together_only_what_has_no_time_is_refused():
    made = world()
    *good, hopeless, unknown = made.submit_together(
        [("q", 1, None, None)] * 3 + [("q", 1, 0.001, None), ("nobody", 1, None, None)]
    )
    assert hopeless.state == REFUSED and unknown.state == REFUSED
    made.advance(0.3)
    assert {query.state for query in good} == {ANSWERED}


def test_a_query_that_nobody_follows_does_not_wait_for_company():
    made = world()
    alone(made)
    assert made.submit("q").state == DISPATCHED


def test_a_query_that_others_follow_soon_waits_for_them():
    made = world()
    for _ in range(60):
        made.submit("q")
        made.advance(0.002)
    made.advance(0.03)
    # The device is idle again, and the next one is due in a few milliseconds.
    first = made.submit("q")
    assert first.state == WAITING
    made.advance(0.002)
    second = made.submit("q")
    assert second.reservation is first.reservation
    made.advance(0.3)
    assert first.batch is second.batch and first.state == ANSWERED


def test_who_comes_in_a_clump_waits_for_the_rest_of_it_however_long_the_pauses():
    made = world()
    for _ in range(20):
        for _ in range(6):
            made.submit("q")
            made.advance(0.002)
        made.advance(0.9)
    # In the mean one comes every 150 ms.
    clump = [made.submit("q")]
    assert clump[0].state == WAITING
    for _ in range(4):
        made.advance(0.002)
        clump.append(made.submit("q"))
    made.advance(0.3)
    assert len({id(query.batch) for query in clump}) == 1


def test_a_lone_client_waits_for_nobody_soon_after_many_have_gone():
    made = world()
    for _ in range(500):
        made.submit("q")
        made.advance(0.0005)
    made.advance(1.0)
    waited = 0
    for _ in range(60):
        waited += made.submit("q").state == WAITING
        made.advance(0.03)
    assert waited <= 8 and made.submit("q").state == DISPATCHED


@pytest.mark.parametrize("pause_s", [0.0001, 0.0005, 0.0009, 0.002])
def test_a_lone_client_that_asks_again_soon_after_its_answer_waits_for_nobody(pause_s):
    made = world(0.0002)
    for _ in range(100):
        made.submit("q")
        made.finish()
        made.advance(pause_s)
    for _ in range(50):
        query = made.submit("q")
        assert query.state == DISPATCHED
        made.finish()
        made.advance(pause_s)


@pytest.mark.parametrize("middle", [0.85, 1.0])
def test_a_lone_client_of_a_device_that_wavers_is_hardly_ever_made_to_wait(middle):
    dice = random.Random(5)
    only = option("only", 90, {1: 0.02, 8: 0.04})
    made = World(
        {"q": 0.3}, {"d0": {"q": menu(only)}}, 0.001, slowness=lambda _: dice.uniform(middle - 0.1, middle + 0.1)
    )
    made.settle()
    waited = 0
    for _ in range(300):
        waited += made.submit("q").state == WAITING
        made.finish()
    assert waited <= 15


def test_ten_thousand_at_once_are_scheduled_or_refused_as_a_few_are():
    made = world()
    queries = made.submit_together([("q", 1, None, None)] * 10_000)
    made.finish()
    assert {query.state for query in queries} == {ANSWERED, REFUSED}
    assert made.binding._groups.classes[QueryClass("q")].demand.interarrival.median_s == SHORTEST_S


@pytest.mark.parametrize(("run_s", "state"), [(0.0003, WAITING), (0.006, DISPATCHED)])
def test_a_batch_goes_ahead_of_an_answer_only_where_that_saves_time(run_s, state):
    rtt_s = 0.9 * run_s
    made = world(rtt_s, d0={"q": menu(option("quick", 90, {1: run_s, 8: run_s}))})
    alone(made)
    made.submit("q")
    # Behind it there is nothing to wait for but its answer, which takes its run and the way.
    made.advance(run_s)
    second = made.submit("q")
    assert second.state == state
    made.advance(4 * run_s)
    assert second.state == ANSWERED


def test_a_full_batch_goes_ahead_however_short_its_run():
    made = world(0.0003, d0={"q": menu(option("quick", 90, {1: 0.0004, 2: 0.0004}))})
    alone(made)
    made.submit("q")
    made.advance(0.0004)
    queries = made.submit_together([("q", 1, None, None)] * 2)
    assert [query.state for query in queries] == [DISPATCHED, DISPATCHED]


def test_who_comes_with_others_is_scheduled_behind_what_they_have_become():
    long, short = option("long", 90, {1: 0.01, 8: 0.2}), option("short", 90, {1: 0.005})
    made = World({"a": 1.0, "b": 0.1}, {"d0": {"a": menu(long), "b": menu(short)}, "d1": {"b": menu(short)}})
    made.settle()
    queries = made.submit_together([("a", 1, None, None)] * 8 + [("b", 1, None, None)] * 2)
    made.advance(1.0)
    assert {query.state for query in queries} == {ANSWERED}
    assert {query.device for query in queries if query.application == "b"} == {"d1"}
