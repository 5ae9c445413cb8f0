"""Proteus' adaptive batching: the paper's cases as whole timelines, and when it may wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.published.driver import Batch, Decided, Query, Served, simulate
from tests.published.strategies import arrivals, candidates
from workers.dispatch.bindings import POLICIES
from workers.dispatch.latency import LatencyModel
from workers.dispatch.published.policy import Candidate, QueueView

pytestmark = pytest.mark.wide

# Sums of powers of two, so that every time below is exact: T_process(1..4) = 1/8, 3/16, 1/4, 5/16 s.
LATENCY = LatencyModel([(1, 0.125), (2, 0.1875), (3, 0.25), (4, 0.3125)])
CANDIDATE = Candidate(1, 90.0, LATENCY, 4)


def run(queries, late="shed", candidate=CANDIDATE):
    return simulate([Served(POLICIES["proteus"](), candidate, late)], queries)


def decide(queries, now=0.0, late="shed", candidate=CANDIDATE, slack_s=0.0):
    view = QueueView(now, queries, [candidate], late == "serve", slack_s)
    return Decided.of(POLICIES["proteus"]().decide(view))


def test_case_1_no_query_follows_and_the_batch_starts_at_the_last_moment_for_one_more():
    timeline = run([Query(1, 0.0, 1.0), Query(2, 0.25, 1.25)])
    assert [(now, d.wait_until, d.run) for now, _, d in timeline.decisions] == [
        (0.0, 1.0 - 0.1875, ()),  # T_max_wait(2)
        (0.25, 1.0 - 0.25, ()),  # T_max_wait(3)
        (0.75, float("inf"), (1, 2)),
    ]
    assert timeline.batches == [Batch("app", 0.75, 0.9375, (1, 2))]


def test_case_2_one_more_comes_in_time_but_too_late_to_wait_for_another():
    # The third comes before T_max_wait(3) = 0.75 but after T_max_wait(4) = 0.6875: it is taken along at once.
    timeline = run([Query(1, 0.0, 1.0), Query(2, 0.25, 1.25), Query(3, 0.7, 1.7)])
    assert [(now, d.run) for now, _, d in timeline.decisions] == [(0.0, ()), (0.25, ()), (0.7, (1, 2, 3))]
    assert timeline.batches == [Batch("app", 0.7, 0.95, (1, 2, 3))]


def test_case_2_continued_waits_again_until_the_batch_is_full():
    timeline = run([Query(i, i / 16, 1 + i / 16) for i in range(4)])
    assert [(now, d.wait_until) for now, _, d in timeline.decisions[:3]] == [
        (0.0, 0.8125),
        (0.0625, 0.75),
        (0.125, 0.6875),
    ]
    assert timeline.batches == [Batch("app", 0.1875, 0.5, (0, 1, 2, 3))]


def test_a_query_with_no_time_to_spare_is_still_served():
    assert decide([Query(1, 0.0, 0.125)]).run == (1,)
    late = decide([Query(1, 0.0, 0.1249)])
    assert (late.run, late.drop) == ((), (1,))


def test_rows_count_not_queries():
    assert decide([Query(1, 0.0, 1.0, rows=3)]).wait_until == 1.0 - 0.3125
    assert decide([Query(1, 0.0, 1.0, rows=4)]).run == (1,)
    # Three rows do not fit behind two: waiting longer could only fill a gap, while the next batch is due as well.
    assert decide([Query(1, 0.0, 1.0, rows=2), Query(2, 0.0, 1.0, rows=3)]).run == (1,)


def test_a_query_larger_than_a_batch_runs_alone_at_once():
    timeline = run([Query(1, 0.0, 9.0, rows=10), Query(2, 0.0, 9.0)])
    assert timeline.batches[0] == Batch("app", 0.0, LATENCY.seconds(10), (1,))
    assert timeline.batches[1].ids == (2,)


def test_a_large_hopeless_query_behind_viable_ones_is_dropped_too():
    decision = decide([Query(1, 0.0, 0.25), Query(2, 0.0, 0.26, rows=4), Query(3, 0.0, 1.0)])
    assert decision.drop == (2,)
    assert decision.run == (1, 3)


def test_one_behind_a_full_batch_is_dropped_too():
    queries = [Query(1, 0.0, 0.2), Query(2, 0.0, 0.3), Query(3, 0.0, 0.305, rows=3), Query(4, 0.0, 0.31, rows=4)]
    decision = decide(queries)
    assert decision.drop == (4,)
    assert decision.run == (1, 2)


def test_on_a_shared_device_it_is_ready_earlier_by_what_the_others_may_hold():
    assert decide([Query(1, 0.0, 1.0)], slack_s=0.5).wait_until == 0.3125
    assert decide([Query(1, 0.0, 1.0)], now=0.3125, slack_s=0.5).run == (1,)


def test_a_larger_batch_measured_quicker_does_not_make_the_wait_too_long():
    candidate = Candidate(1, 90.0, LatencyModel([(1, 0.5), (2, 0.25)]), 2)
    timeline = run([Query(1, 0.0, 1.0)], candidate=candidate)
    assert timeline.batches == [Batch("app", 0.5, 1.0, (1,))]


@pytest.mark.parametrize("deadline", [0.82, 0.87, 0.93, 1e6 + 0.1, 123456.789])
def test_the_last_moment_is_not_missed_by_rounding(deadline):
    # Padding makes one and two rows cost the same, so that the wait ends with nothing to spare.
    candidate = Candidate(1, 90.0, LatencyModel([(2, 0.3), (4, 0.5)], interpolate=False), 4)
    timeline = run([Query(1, deadline - 0.5, deadline)], candidate=candidate)
    assert not timeline.dropped
    assert timeline.batches[0].end <= deadline


class TestServingLateOnes:
    def test_nothing_is_dropped_and_punctual_ones_go_first(self):
        queries = [Query(1, 0.0, 0.01), Query(2, 0.0, 0.125), Query(3, 0.0, 0.02)]
        assert [batch.ids for batch in run(queries, late="serve").batches] == [(2,), (1, 3)]

    def test_they_run_in_the_time_in_which_the_queue_waits_on_purpose(self):
        timeline = run([Query(1, 0.0, 0.01), Query(2, 0.0, 1.0)], late="serve")
        assert timeline.batches == [Batch("app", 0.0, 0.125, (1,)), Batch("app", 0.8125, 0.9375, (2,))]

    def test_they_do_not_run_where_the_punctual_would_pay_for_it(self):
        # A late one alone takes until 0.125, but the viable one wants to start at 0.3 - 0.1875: it waits, then both go.
        timeline = run([Query(1, 0.0, 0.01), Query(2, 0.0, 0.3)], late="serve")
        assert timeline.batches == [Batch("app", 0.3 - 0.1875, 0.3, (2, 1))]

    def test_a_long_backlog_of_them_goes_in_full_batches(self):
        timeline = run([Query(i, 0.0, 0.01) for i in range(9)], late="serve")
        assert [batch.ids for batch in timeline.batches] == [(0, 1, 2, 3), (4, 5, 6, 7), (8,)]


def reference(view):
    """The queries of the largest punctual batch, by trying every prefix."""
    seconds = view.candidates[0].latency.seconds
    viable = [q for q in view.queue if q.deadline >= view.now + seconds(q.rows)]
    best = viable[:1]
    for k in range(1, len(viable) + 1):
        rows = sum(q.rows for q in viable[:k])
        if rows > view.candidates[0].max_batch:
            break
        if view.now + seconds(rows) <= viable[0].deadline:
            best = viable[:k]
    return viable, best


@given(candidate=candidates(), queries=arrivals(), slack_s=st.sampled_from([0.0, 0.0, 0.01, 0.1]))
def test_it_runs_the_largest_punctual_prefix_and_never_waits_past_t_max_wait(candidate, queries, slack_s):
    seconds = candidate.latency.seconds

    def check(view, decision):
        view = QueueView(view.now, view.queue, view.candidates, view.serve_late, slack_s)
        decision = Decided.of(POLICIES["proteus"]().decide(view))
        viable, best = reference(view)
        if decision.run:
            assert decision.run == tuple(query.id for query in best)
        elif viable:
            rows = sum(query.rows for query in viable)
            assert viable == best and rows < candidate.max_batch
            t_max_wait = viable[0].deadline - seconds(rows + 1) - slack_s
            assert view.now < decision.wait_until <= t_max_wait

    simulate([Served(POLICIES["proteus"](), candidate)], queries, check)


#: half the time that decisions count on, for a device whose latencies have a long tail
TAILED = Candidate(1, 90.0, LATENCY, 4, typical=LatencyModel([(1, 0.0625), (2, 0.09375), (3, 0.125), (4, 0.15625)]))


def test_a_query_that_only_a_slow_run_would_make_late_is_tried_when_nothing_else_waits():
    doubtful = Query(1, 0.0, 0.1)
    assert decide([doubtful], candidate=TAILED).run == (1,)
    assert decide([doubtful]).drop == (1,)


def test_a_query_that_is_late_even_in_the_usual_time_is_dropped():
    assert decide([Query(1, 0.0, 0.05)], candidate=TAILED).drop == (1,)


def test_a_doubtful_query_never_goes_before_one_that_is_sure_to_be_in_time():
    queries = [Query(1, 0.0, 0.1), Query(2, 0.0, 0.15)]
    assert decide(queries, candidate=TAILED).run == (2,)


def test_a_doubtful_query_is_tried_while_others_have_time_to_wait():
    queries = [Query(1, 0.0, 0.1), Query(2, 0.0, 5.0)]
    decision = decide(queries, candidate=TAILED)
    assert decision.run == (1,) and decision.drop == ()
