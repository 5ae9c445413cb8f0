"""The published baselines: Nexus' early drop, Clipper's AIMD, and fixed batches."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.examples import examples
from tests.published.driver import Batch, Decided, Query, Served, simulate
from tests.published.strategies import arrivals, candidates
from workers.dispatch.bindings import POLICIES
from workers.dispatch.latency import LatencyModel
from workers.dispatch.published.policy import Candidate, QueueView

pytestmark = pytest.mark.wide

LATENCY = LatencyModel([(1, 0.125), (2, 0.1875), (3, 0.25), (4, 0.3125)])
CANDIDATE = Candidate(1, 90.0, LATENCY, 4)


def decide(policy, queries, now=0.0, late="shed", candidate=CANDIDATE):
    return Decided.of(policy.decide(QueueView(now, queries, [candidate], late == "serve")))


class TestNexus:
    def test_the_first_queries_are_dropped_until_a_full_window_is_punctual(self):
        # A full batch takes 0.3125 s. The first two could be in time in a smaller one, and are given up all the same.
        queries = [Query(i, 0.0, d) for i, d in enumerate([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])]
        decision = decide(POLICIES["nexus"](), queries)
        assert (decision.drop, decision.run) == ((0, 1), (2, 3, 4, 5))

    def test_late_ones_and_those_passed_over_are_kept_when_all_are_served(self):
        queries = [Query(i, 0.0, d) for i, d in enumerate([0.01, 0.2, 0.35, 0.4, 0.5, 0.6, 9.0])]
        timeline = simulate([Served(POLICIES["nexus"](), CANDIDATE, "serve")], queries)
        assert [batch.ids for batch in timeline.batches] == [(2, 3, 4, 5), (6, 0, 1)]

    def test_a_large_hopeless_query_behind_the_window_is_dropped_once(self):
        queries = [Query(1, 0.0, 0.13), Query(2, 0.0, 0.14), Query(3, 0.0, 0.15, rows=2)]
        decision = decide(POLICIES["nexus"](), queries, candidate=Candidate(1, 90.0, LATENCY, 2))
        assert (sorted(decision.drop), decision.run) == ([1, 3], (2,))

    def test_late_ones_do_not_delay_those_passed_over(self):
        queries = [Query(1, 0.0, 0.01), Query(2, 0.0, 0.15), Query(3, 0.0, 0.9)]
        assert decide(POLICIES["nexus"](), queries, late="serve").run == (3,)

    @examples(30)
    @given(candidate=candidates(), queries=arrivals())
    def test_it_runs_the_first_punctual_window(self, candidate, queries):
        seconds = candidate.latency.seconds

        def check(view, decision):
            viable = [q for q in view.queue if q.deadline >= view.now + seconds(q.rows)]
            for i in range(len(viable)):
                window, rows = [], 0
                for query in viable[i:]:
                    if window and rows + query.rows > candidate.max_batch:
                        break
                    window.append(query)
                    rows += query.rows
                if view.now + seconds(rows) <= window[0].deadline:
                    assert decision.run == tuple(query.id for query in window)
                    assert {query.id for query in viable[:i]} <= set(decision.drop)
                    return
            assert not viable

        simulate([Served(POLICIES["nexus"](), candidate)], queries, check)


def grown(cap: int):
    """Clipper's policy after as many full batches in time as it takes to reach a cap."""
    policy = POLICIES["clipper"]()
    wide = Candidate(1, 90.0, LATENCY, 64)
    while policy.cap < cap:
        decision = decide(policy, [Query(i, 0.0, 99.0) for i in range(64)], candidate=wide)
        policy.observe(len(decision.run), 0)
    return policy


class TestClipper:
    def outcome(self, policy, rows, late=0):
        policy.observe(rows, late)
        return policy.cap

    def test_the_cap_grows_by_one_and_backs_off_by_a_tenth(self):
        policy = POLICIES["clipper"]()
        big = Candidate(1, 90.0, LatencyModel([(1, 0.01), (64, 0.1)]), 64)
        caps, batches = [], []
        for step in range(24):
            decision = decide(policy, [Query(i, 0.0, 9.0) for i in range(100)], candidate=big)
            batches.append(len(decision.run))
            caps.append(self.outcome(policy, len(decision.run), late=1 if step in (19, 20, 21) else 0))
        assert batches[:20] == list(range(1, 21))
        # 20 -> 18 -> 16.2 -> 14.58 -> 15.58 -> 16.58
        assert caps[18:] == [20, 18, 16, 14, 15, 16]

    def test_a_batch_below_the_cap_proves_nothing(self):
        policy = grown(3)
        decide(policy, [Query(1, 0.0, 9.0)])
        assert self.outcome(policy, 1) == 3

    def test_the_cap_stays_within_one_and_the_plans_batch(self):
        policy = grown(4)
        decide(policy, [Query(i, 0.0, 9.0) for i in range(9)])
        assert self.outcome(policy, 4) == 4
        for _ in range(99):
            self.outcome(policy, 4, late=4)
        assert policy.cap == 1

    def test_it_is_reactive_the_first_query_may_be_late_in_a_batch_that_is_too_large(self):
        policy = grown(4)
        timeline = simulate([Served(policy, CANDIDATE)], [Query(i, 0.0, d) for i, d in enumerate([0.2, 1.0, 1.0, 1.0])])
        assert timeline.batches == [Batch("app", 0.0, 0.3125, (0, 1, 2, 3))]
        assert policy.cap == 3

    def test_queries_that_were_late_before_they_ran_are_no_miss(self):
        policy = grown(4)
        simulate([Served(policy, CANDIDATE, "serve")], [Query(i, 0.0, 0.01) for i in range(4)])
        assert policy.cap == 4
