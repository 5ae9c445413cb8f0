"""Batching by policies: what runs by load, queue and slack, and what nothing can change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.stacks.ramsis.load_limits import ByLoadPolicy, ShortestQueueRouter
from tests.published.driver import Query
from workers.dispatch.latency import LatencyModel
from workers.dispatch.policy_tables import LoadPolicy, PolicySet, constant
from workers.dispatch.published.load_monitor import LoadMonitor
from workers.dispatch.published.papers.ramsis import RamsisPolicy
from workers.dispatch.published.policy import Candidate, QueueView

pytestmark = pytest.mark.wide


def candidate(name: str, accuracy: float, row_ms: float, largest: int = 8, planned_rows: int = 2) -> Candidate:
    latency = LatencyModel([(rows, row_ms * rows / 1e3) for rows in range(1, largest + 1)])
    return Candidate(name, accuracy, latency, min(planned_rows, largest), largest=largest)


FAST, MIDDLE, SLOW = candidate("fast", 60, 10), candidate("middle", 75, 20), candidate("slow", 90, 40)
#: slow while the head has 60 ms, then middle; longer queues are fast; above 100/s always fast
CALM = LoadPolicy(50.0, (((0.0, 1), (0.06, 2)), ((0.0, 0), (0.05, 1)), ((0.0, 0),)))
BUSY = LoadPolicy(100.0, (((0.0, 0), (0.05, 1)), ((0.0, 0),)))
POLICIES = PolicySet(("fast", "middle", "slow"), (CALM, BUSY))


def monitor(rate: float, now: float) -> LoadMonitor:
    """A load monitor that has seen ``rate`` rows/s for a second."""
    load = LoadMonitor()
    for number in range(int(rate)):
        load.add(1, now - 1.0 + number / rate)
    return load


def view(deadlines, load=40.0, candidates=(FAST, MIDDLE, SLOW), late=False, policies=POLICIES) -> QueueView:
    queue = [Query(i, 0.0, 10.0 + deadline) for i, deadline in enumerate(deadlines)]
    return QueueView(10.0, queue, list(candidates), late, 0.0, policies, monitor(load, 10.0))


def ran(decision) -> tuple[str, int]:
    return decision.candidate.variant, len(decision.run)


def test_the_variant_is_the_policy_s_for_load_queue_and_slack():
    ramsis = RamsisPolicy()
    assert ran(ramsis.decide(view([0.06]))) == ("slow", 1)
    assert ran(ramsis.decide(view([0.059]))) == ("middle", 1)
    assert ran(ramsis.decide(view([0.06, 0.07]))) == ("middle", 2)
    assert ran(ramsis.decide(view([0.06, 0.07, 0.08]))) == ("fast", 3)
    assert ran(ramsis.decide(view([0.06], load=80))) == ("middle", 1)


def test_above_all_loads_and_without_policies_the_fastest_variant_runs():
    ramsis = RamsisPolicy()
    assert ran(ramsis.decide(view([0.1], load=200))) == ("fast", 1)
    assert ran(ramsis.decide(view([0.1], policies=None))) == ("fast", 1)


def test_a_variant_that_is_missing_or_slow_here_gives_way_to_the_next_faster_one():
    ramsis = RamsisPolicy()
    assert ran(ramsis.decide(view([0.1], candidates=(FAST, MIDDLE)))) == ("middle", 1)
    slower = candidate("slow", 90, 120)
    assert ran(ramsis.decide(view([0.1], candidates=(FAST, MIDDLE, slower)))) == ("middle", 1)
    assert ran(ramsis.decide(view([0.1], candidates=(SLOW,)))) == ("slow", 1)


def test_a_batch_that_all_variants_are_late_with_loses_its_first_queries_or_runs_late():
    ramsis = RamsisPolicy()
    queue = [0.015, 0.025, 0.03, 0.035, 0.04]
    decision = ramsis.decide(view(queue))
    assert ran(decision) == ("fast", 3) and [query.id for query in decision.drop] == [0, 1]
    assert ran(ramsis.decide(view(queue, late=True))) == ("fast", 5)


def test_queries_that_cannot_be_in_time_are_dropped_unless_late_ones_are_served():
    decision = RamsisPolicy().decide(view([0.005, 0.1]))
    assert [query.id for query in decision.drop] == [0] and ran(decision) == ("slow", 1)
    assert not RamsisPolicy().decide(view([0.005, 0.1], late=True)).drop


@given(
    st.lists(st.floats(-0.05, 0.4), min_size=1, max_size=12).map(sorted),
    st.floats(1, 300),
    st.booleans(),
    st.lists(st.sampled_from([FAST, MIDDLE, SLOW]), min_size=1, max_size=3, unique=True),
)
def test_no_batch_is_bound_to_be_late_while_some_variant_is_in_time(deadlines, load, late, candidates):
    seen = view(deadlines, load, candidates, late)
    decision = RamsisPolicy().decide(seen)
    fastest = min(candidates, key=lambda c: c.latency.seconds(1))
    viable = [query for query in seen.queue if query.deadline >= 10.0 + fastest.latency.seconds(1)]
    assert decision.run or not viable
    if viable and not late:
        end = 10.0 + decision.candidate.latency.seconds(len(decision.run))
        assert end <= min(query.deadline for query in decision.run) + 1e-9


def test_a_policy_by_load_runs_one_variant_for_all_that_wait():
    policies = PolicySet(("fast", "middle", "slow"), (constant(30.0, 2), constant(60.0, 1)))
    for load, variant in ((20.0, "slow"), (50.0, "middle"), (200.0, "fast")):
        decision = ByLoadPolicy().decide(view([0.2, 0.3], load, policies=policies))
        assert ran(decision) == (variant, 1)  # Clipper's first batch
    by_load = ByLoadPolicy()
    by_load.decide(view([0.2, 0.3], 20.0, policies=policies))
    by_load.observe(1, 0)
    assert ran(by_load.decide(view([0.2, 0.3], 20.0, policies=policies))) == ("slow", 2)


def test_a_load_is_the_mean_of_half_a_second():
    load = LoadMonitor()
    for number in range(200):
        load.add(2, number / 100)
    assert load.rate(2.0) == pytest.approx(200, rel=0.03)
    assert load.rate(2.25) == pytest.approx(100, rel=0.05)
    assert load.rate(2.6) == load.rate(100.0) == 0


def test_a_load_counts_from_the_first_arrival_at_first():
    load = LoadMonitor()
    load.add(1, 50.0)
    assert load.rate(50.0) == 10  # a tenth of a second at least
    for number in range(1, 20):
        load.add(1, 50 + number / 100)
    assert load.rate(50.2) == pytest.approx(100, rel=0.05)


def test_a_set_has_the_policy_of_the_lowest_load_that_is_enough():
    assert POLICIES.at(0.0) is CALM and POLICIES.at(50.0) is CALM
    assert POLICIES.at(50.1) is BUSY and POLICIES.at(100.1) is None
    assert CALM.choose(9, 1.0) == 0 and CALM.choose(1, 0.0) == 1 and CALM.choose(1, -1.0) == 1


def test_the_shortest_queue_gets_a_query_and_ties_follow_the_shares():
    router = ShortestQueueRouter()
    router.set_routes({"app": [("a", 1.0), ("b", 1.0), ("c", 1.0)]})

    def pick(**rows: int) -> str | None:
        return router.pick("app", 1, set(rows), 1.0, lambda device: 0.1, rows.__getitem__)

    assert [pick(a=0, b=0, c=0) for _ in range(6)] == ["a", "b", "c"] * 2
    assert pick(a=2, b=1, c=3) == "b"
    assert [pick(a=1, b=1, c=1) for _ in range(2)] == ["b", "c"]
    assert pick(b=5, c=4) == "c"
    assert router.pick("app", 1, set(), 1.0, lambda device: 0.1, lambda device: 0) is None
