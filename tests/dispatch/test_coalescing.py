"""Short batches wait a moment for queries that follow each other closely."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.dispatch.late.dispatching import COALESCE_S

from .driver import ANSWERED, DISPATCHED, WAITING, Query, World, menu, option

#: whatever the batch, a run takes so long
RUN_S, RTT_S = 20e-6, 150e-6
QUICK = option("quick", 90, {1: RUN_S, 16: RUN_S})


def world(slo_s: float = 0.05, run_s: float = RUN_S) -> World:
    made = World({"q": slo_s}, {"d0": {"q": menu(option("quick", 90, {1: run_s, 16: 1.5 * run_s}))}}, RTT_S)
    made.settle()
    return made


class Clients:
    """Clients that ask again after their answers, each ``think_s`` after the one before."""

    def __init__(self, made: World, count: int, think_s: float):
        self.made, self.think_s = made, think_s
        self.asked: list[Query] = []
        self.mine: dict[int, Query] = {}
        self.next: list[tuple[float, int]] = [(i * think_s, i) for i in range(count)]

    def run(self, seconds: float) -> None:
        made, mine, end = self.made, self.mine, self.made.now + seconds
        while made.now < end:
            self.next.sort()
            at = self.next[0][0] if self.next else math.inf
            event = min(made._next(), end)
            if at <= event:
                made.until(max(at, made.now))
                client = self.next.pop(0)[1]
                mine[client] = made.submit("q")
                self.asked.append(mine[client])
            else:
                made.until(event)
            answered = sorted(client for client, query in mine.items() if query.state == ANSWERED)
            for place, client in enumerate(answered):
                del mine[client]
                self.next.append((made.now + (place + 1) * self.think_s, client))


def batches(queries: list[Query]) -> list[int]:
    return [batch.rows for batch in dict.fromkeys(query.batch for query in queries if query.state == ANSWERED)]


@pytest.mark.parametrize("count", [2, 8, 16])
def test_clients_that_ask_again_at_once_come_to_share_a_batch(count):
    clients = Clients(world(), count, 10e-6)
    clients.run(0.05)
    clients.asked.clear()
    clients.run(0.05)
    found = batches(clients.asked)
    assert sum(found) / len(found) > 0.9 * count
    # Once all are there nobody else is waited for.
    waits = [query.batch.dispatched_at - query.arrived for query in clients.asked if query.state == ANSWERED]
    assert max(waits) < COALESCE_S


def dense(made: World, count: int = 300) -> None:
    for _ in range(count):
        made.submit("q")
        made.advance(COALESCE_S / 10)
    made.finish()


def test_it_waits_a_moment_and_no_longer():
    made = world()
    dense(made)
    query = made.submit("q")
    assert query.state == WAITING
    made.advance(COALESCE_S + 1e-9)
    assert query.state == DISPATCHED


def test_a_full_batch_does_not_wait():
    made = world()
    dense(made)
    queries = made.submit_together([("q", 1, None, None)] * 16)
    assert {query.state for query in queries} == {DISPATCHED}


def test_who_has_no_time_does_not_wait():
    made = world(slo_s=0.0008)
    dense(made)
    assert made.submit("q").state == DISPATCHED


def test_batches_that_take_their_time_do_not_wait_for_what_they_would_not_gain():
    # Company would make a row cheaper, and the next query is due at once: but not for the sake of handing over.
    made = world(run_s=0.9 * COALESCE_S / 1.03)
    dense(made)
    assert made.submit("q").state == WAITING
    made = world(run_s=1.1 * COALESCE_S)
    dense(made)
    assert made.submit("q").state == DISPATCHED


@given(
    st.lists(st.tuples(st.floats(0, 3e-4), st.integers(1, 5), st.sampled_from([0.0006, 0.002, 0.05])), max_size=150),
    st.integers(1, 3),
)
def test_however_closely_they_come_none_is_late_and_all_are_answered(arrivals, devices):
    made = World({"q": 0.05}, {f"d{i}": {"q": menu(QUICK)} for i in range(devices)}, RTT_S)
    made.settle()
    for gap_s, count, budget_s in arrivals:
        made.submit_together([("q", 1, budget_s, None)] * count)
        made.advance(gap_s)
    made.finish()
    # That none is answered late the world sees to; nor does any wait here while its device is idle.
    for query in made.queries:
        if query.state == ANSWERED and devices == 1 and query.batch.dispatched_at - query.arrived > 3 * COALESCE_S:
            raise AssertionError(f"{query} waited for {query.batch.dispatched_at - query.arrived:g} s")
