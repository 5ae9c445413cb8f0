"""Relief by faster variants.

It comes only when the planned one would be late, and lowers accuracy no further than needed.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulation.nereus_policy import choose, clears
from scheduler.simulation.policies import POLICIES
from tests.published.driver import Decided, Query
from workers.dispatch.latency import LatencyModel
from workers.dispatch.published.batching.policy import Candidate, QueueView

pytestmark = pytest.mark.wide


def variant(number: int, accuracy: float, seconds_per_row: float, largest: int = 8) -> Candidate:
    points = [(b, b * seconds_per_row) for b in (1, 2, 4, 8) if b <= largest]
    return Candidate(number, accuracy, LatencyModel(points), largest, planned=number == 1)


BEST = variant(1, 99.0, 0.1, largest=2)
MIDDLE = variant(2, 95.0, 0.03, largest=4)
QUICK = variant(3, 90.0, 0.01)


def decide(queries, candidates, now=0.0):
    return Decided.of(POLICIES["nereus"]().decide(QueueView(now, queries, candidates)))


def backlog(count: int, deadline: float = 0.4) -> list[Query]:
    return [Query(i, 0.0, deadline) for i in range(count)]


def test_the_planned_variant_waits_for_more_rows_until_half_of_the_time_is_gone():
    queue = backlog(1)
    assert decide(queue, [BEST, MIDDLE, QUICK]).wait_until == 0.2
    assert decide(queue, [BEST, MIDDLE, QUICK], now=0.2).run == (0,)


def test_it_does_not_wait_longer_than_proteus_would():
    slow = variant(1, 99.0, 0.15, largest=2)
    queue = backlog(1)
    proteus = POLICIES["proteus"]().decide(QueueView(0.0, queue, [slow]))
    assert decide(queue, [slow]).wait_until == proteus.wait_until < 0.2


def test_a_backlog_that_is_too_long_goes_to_the_most_accurate_variant_that_clears_it():
    # Six rows: 0.6 s on the best, 0.18 s on the middle one.
    decision = decide(backlog(6), [BEST, MIDDLE, QUICK])
    assert decision.variant == MIDDLE.variant and decision.run == (0, 1, 2, 3)


def test_a_longer_one_goes_to_a_faster_variant():
    # Twenty rows: 0.6 s on the middle one, 0.2 s on the quick one.
    assert decide(backlog(20), [BEST, MIDDLE, QUICK]).variant == QUICK.variant


def test_a_backlog_that_no_variant_clears_goes_to_the_highest_throughput():
    assert decide(backlog(200), [BEST, MIDDLE, QUICK]).variant == QUICK.variant


def test_a_query_that_only_a_faster_variant_can_still_answer_in_time_is_not_given_up():
    decision = decide([Query(1, 0.0, 0.05)], [BEST, MIDDLE, QUICK])
    assert (decision.run, decision.variant, decision.drop) == ((1,), MIDDLE.variant, ())


def test_what_no_variant_can_answer_in_time_is_dropped_and_lowers_no_accuracy():
    hopeless, fine = Query(1, 0.0, 0.005), Query(2, 0.0, 5.0)
    decision = decide([hopeless, fine], [BEST, MIDDLE, QUICK])
    assert decision.drop == (1,) and decision.run == () and 0 < decision.wait_until <= 5.0


def test_with_one_variant_a_backlog_is_batched_as_proteus_does():
    for count in (2, 3, 9):
        queue = backlog(count)
        proteus = POLICIES["proteus"]().decide(QueueView(0.0, queue, [BEST]))
        assert decide(queue, [BEST]) == Decided.of(proteus)


queues = st.lists(st.tuples(st.floats(0.0, 2.0), st.integers(1, 3)), min_size=1, max_size=40).map(
    lambda some: sorted(
        (Query(i, 0.0, deadline, rows) for i, (deadline, rows) in enumerate(some)), key=lambda q: (q.deadline, q.id)
    )
)


@given(queues)
def test_it_never_runs_a_batch_with_a_query_that_is_bound_to_be_late(queue):
    decision = decide(queue, [BEST, MIDDLE, QUICK])
    by_id = {query.id: query for query in queue}
    if decision.run:
        chosen = {c.variant: c for c in (BEST, MIDDLE, QUICK)}[decision.variant]
        ends = chosen.latency.seconds(sum(by_id[i].rows for i in decision.run))
        assert all(by_id[i].deadline >= ends for i in decision.run)


@given(queues)
def test_what_it_drops_no_variant_could_answer_in_time(queue):
    decision = decide(queue, [BEST, MIDDLE, QUICK])
    by_id = {query.id: query for query in queue}
    for i in decision.drop:
        assert all(c.latency.seconds(by_id[i].rows) > by_id[i].deadline for c in (BEST, MIDDLE, QUICK))


@given(queues)
def test_accuracy_is_lowered_no_further_than_needed(queue):
    chosen = choose(queue, [BEST, MIDDLE, QUICK], 0.0)
    able = [q for q in queue if any(c.latency.seconds(q.rows) <= q.deadline for c in (BEST, MIDDLE, QUICK))]
    for candidate in (BEST, MIDDLE, QUICK):
        if candidate.accuracy > chosen.accuracy:
            assert not clears(able, candidate, 0.0)


@given(queues)
def test_clears_means_that_serving_batch_after_batch_makes_no_query_late(queue):
    if clears(queue, QUICK, 0.0):
        now, waiting = 0.0, list(queue)
        while waiting:
            batch, rows = [], 0
            while waiting and (not batch or rows + waiting[0].rows <= QUICK.max_batch):
                rows += waiting[0].rows
                batch.append(waiting.pop(0))
            now += QUICK.latency.seconds(rows)
            assert all(now <= query.deadline + 1e-9 for query in batch)
