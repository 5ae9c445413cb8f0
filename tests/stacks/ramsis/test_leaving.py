"""Batches that leave queries behind.

Tested are probabilities, where the next head is, and that policies are worth no less.
"""

from __future__ import annotations

import itertools
import math
from contextvars import copy_context

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import progress
from scheduler.stacks.ramsis.arrivals import Stream, round_robin, shortest_queue
from scheduler.stacks.ramsis.expectation import expected
from scheduler.stacks.ramsis.leaving import LeavingStates
from scheduler.stacks.ramsis.solve import EXACT, Policy, Rewards, solve
from scheduler.stacks.ramsis.sweep import Sweep
from scheduler.stacks.ramsis.transitions import Chain
from scheduler.stacks.ramsis.worker import Worker, worker
from tests.examples import examples
from tests.stacks.ramsis.test_solve import worth
from tests.stacks.ramsis.workers import linear, observed, three

pytestmark = pytest.mark.wide

streams = st.one_of(
    st.builds(round_robin, st.floats(5, 600), st.integers(1, 9), st.sampled_from([1.0, 0.3])),
    st.builds(shortest_queue, st.floats(5, 600), st.integers(1, 9), st.floats(50, 200)),
)
lengths = st.one_of(st.none(), st.integers(1, 20))


def variable(made, stream, weigh="queries") -> tuple[Policy, Chain]:
    chain = Chain(made, stream, variable=True)
    return solve(made, stream, weigh, chain), chain


@given(streams, lengths, st.integers(2, 8))
def test_probabilities_sum_to_one(stream, lengths, queue):
    for run in Chain(three(lengths=lengths, queue=queue), stream, variable=True).leaving:
        assert run.heads.sum(axis=2) == pytest.approx(np.ones(run.heads.shape[:2]), abs=1e-9)
        assert run.during.sum(axis=0) + run.full == pytest.approx(np.ones(run.full.shape), abs=1e-9)
        assert run.spread.sum(axis=1) == pytest.approx(np.ones(len(run.spread)))
        assert min(part.min() for part in (run.heads, run.during, run.full, run.dropped, run.spread)) >= -1e-12
        states = np.zeros((queue + 1, run.spread.shape[1]))
        here = np.zeros(run.heads.shape[:2], bool)
        here[-1, 0] = True
        assert LeavingStates(run, here).back(np.ones(1), states) >= 0 and states.sum() == pytest.approx(1, abs=1e-9)
        # Those left behind are still there.
        left = run.states[0].stop - 1 - run.rows
        assert states[:left].sum() == 0


@examples(10)
@given(streams, lengths, st.integers(0, 2**32 - 1))
def test_back_is_the_transpose_of_ahead(stream, lengths, seed):
    chain = Chain(three(lengths=lengths), stream, variable=True)
    source = np.random.default_rng(seed)
    values = source.normal(size=(chain.worker.queue + 1, len(chain.slacks), 2))
    price = source.normal(size=2)
    for run in chain.leaving:
        here = source.random(run.heads.shape[:2]) < 0.3
        here[source.integers(len(here)), -1] = True
        some, states = LeavingStates(run, here), np.zeros(values.shape[:2])
        weights = source.random(len(some.queued))
        dropped = some.back(weights, states)
        # Those of a policy's states are the same as those of all.
        assert some.ahead(values, price) == pytest.approx(run.ahead(values, price)[here], rel=1e-9, abs=1e-9)
        forward = weights @ some.ahead(values, price)
        assert forward == pytest.approx((states[:, :, None] * values).sum(axis=(0, 1)) + dropped * price, rel=1e-9)


def ordered(total: int, least: int, share: float) -> float:
    """Return the chance that at least ``least`` uniform times are within a share.

    Args:
        total: number of times, uniform over the whole time.
        share: part of the whole time, 0 to 1.
    """
    return sum(math.comb(total, n) * share**n * (1 - share) ** (total - n) for n in range(least, total + 1))


@pytest.mark.parametrize("workers, queued, rows, slack", [(1, 3, 1, 90), (3, 4, 2, 60), (3, 5, 1, 45), (5, 2, 1, 80)])
def test_the_next_head_is_where_order_statistics_say(workers, queued, rows, slack):
    chain = Chain(three(lengths=100), round_robin(50.0 * workers, workers), variable=True)
    slacks, slo, seconds = chain.worker.slacks, chain.worker.slo_s, chain.worker.seconds()
    run = next(one for one in chain.leaving if (one.variant, one.rows) == (0, rows))
    here = np.zeros(run.heads.shape[:2], bool)
    here[queued - run.first, slack - run.slack] = True
    states = np.zeros((chain.worker.queue + 1, len(slacks)))
    LeavingStates(run, here).back(np.ones(1), states)
    age, after = slo - slacks[slack], states.sum(axis=0)
    for place in range(1, len(slacks)):
        # The head of the rest has less slack than this when the run ends.
        share = min(1.0, max(0.0, (slacks[place] + seconds[0, rows] - slacks[slack]) / age))
        below = sum(
            chance * ordered((queued - 1) * workers + phase, rows * workers, share)
            for phase, chance in enumerate(chain.phases[queued, slack])
        )
        nearby = after[place - 1 : place + 1].sum()
        assert after[:place].sum() == pytest.approx(below, abs=nearby / 4 + 1e-6)


@examples(12)
@given(
    st.floats(5, 400),
    st.integers(1, 12),
    st.one_of(st.none(), st.integers(2, 30)),
    st.sampled_from(["queries", "decisions"]),
    st.lists(st.tuples(st.floats(1, 30), st.floats(1, 20), st.integers(1, 8)), min_size=1, max_size=3),
)
def test_a_policy_is_worth_no_less_and_leaves_queries_behind_only_where_its_batch_is_in_time(
    rate, workers, lengths, weigh, times
):
    variants = [linear(f"v{i}", 50 + 10 * i, base, row, most) for i, (base, row, most) in enumerate(times)]
    made = worker(0.1, variants, lengths, 6)
    policy, chain = variable(made, round_robin(rate, workers), weigh)
    assert policy.worth >= solve(made, chain.stream, weigh).worth
    seconds, slacks = made.seconds(), np.array(made.slacks)
    queued, slack = np.nonzero((policy.rows < made.all_rows())[1:])
    queued += 1
    rows, choice = policy.rows[queued, slack], policy.choice[queued, slack]
    assert (rows >= 1).all() and (seconds[choice, rows] <= slacks[slack] + 1e-12).all()


def test_no_other_policy_of_a_small_worker_is_worth_more():
    variants = [linear("fast", 60, 20, 25, 2), linear("slow", 90, 45, 20, 2)]
    made, stream = worker(0.1, variants, 4, 2), round_robin(40.0, 2)
    found, chain = variable(made, stream)
    options = []
    for queued, slack in itertools.product((1, 2), range(5)):
        all_rows = [(v, queued) for v in (0, 1) if chain.allowed[v, queued, slack]]
        one_row = [(v, 1) for v in (0, 1) if chain.in_time[v, 1, slack]] if queued == 2 else []
        options.append([(queued, slack, *some) for some in all_rows + one_row])
    assert 16 <= math.prod(map(len, options)) <= 5_000
    best = 0.0
    for policy in itertools.product(*options):
        choice, rows = np.zeros((3, 5), int), made.all_rows()
        for queued, slack, variant, batch in policy:
            choice[queued, slack], rows[queued, slack] = variant, batch
        best = max(best, worth(chain, choice, rows, by_queries=True))
    assert worth(chain, found.choice, found.rows, by_queries=True) == pytest.approx(best, abs=2 * EXACT)
    assert (found.rows < made.all_rows()).any()


@pytest.mark.parametrize(
    "count, queue, stream, by_queries, by_decisions",
    [
        (12, 8, round_robin(700.0, 10), 76.6295, 78.2352),
        (50, 8, round_robin(1_300.0, 10), 66.5189, 68.9802),
        (None, 8, round_robin(60.0, 1), 76.9558, 77.1405),
        (20, 5, round_robin(300.0, 3, 0.3), 59.3049, 64.5039),
        (20, 8, shortest_queue(1_000.0, 10, 110.0), 76.1848, 76.6167),
    ],
)
def test_policies_are_worth_what_sweeps_over_all_states_found(count, queue, stream, by_queries, by_decisions):
    made = three(lengths=count, queue=queue)
    for weigh, known in (("queries", by_queries), ("decisions", by_decisions)):
        assert variable(made, stream, weigh)[0].worth == pytest.approx(known, abs=2e-4)


@pytest.mark.parametrize("rate, workers", [(60.0, 1), (700.0, 10), (1_300.0, 10)])
def test_the_expectation_is_close_to_a_simulation(rate, workers):
    stream = round_robin(rate, workers)
    policy, chain = variable(three(lengths=100), stream)
    promised = expected(policy, chain=chain)
    accuracy, late = observed(policy, stream, 30_000, seed=7)
    assert accuracy == pytest.approx(promised.accuracy, abs=0.6)
    assert late == pytest.approx(promised.violation_rate, abs=0.02)
    assert promised.accuracy * (1 - promised.violation_rate) == pytest.approx(policy.worth, abs=2 * EXACT)
    # The chain that the policy needs is made where none is given.
    assert expected(policy) == promised


def test_near_the_capacity_smaller_batches_in_time_are_worth_more():
    variants = [linear("fast", 60, 5, 10, 12), linear("slow", 90, 25, 16, 12)]
    made, stream = worker(0.1, variants, 50, 12), round_robin(650.0, 10)
    most, (policy, _) = solve(made, stream), variable(made, stream)
    assert policy.worth > most.worth + 2 and (policy.rows < made.all_rows()).any()


def slow() -> tuple[Worker, Stream]:
    """A worker whose queue changes slowly: it serves about as fast as queries come."""
    variants = [linear(f"v{i}", 70 + 8 * i, 0.143 * 1.77**i, 2.28 * 1.77**i, 16) for i in range(4)]
    return worker(0.5, variants, 20, 16), round_robin(80.0, 1)


def test_values_and_frequencies_are_exact_however_slowly_a_queue_changes():
    policy, chain = variable(*slow())
    rewards, step = Rewards(chain, "queries"), Sweep(chain, policy.choice, policy.rows)
    gain, values = rewards.gain(policy.choice, policy.rows), np.zeros((chain.worker.queue + 1, len(chain.slacks), 2))
    # Many more sweeps than the solution took.
    for _ in range(400):
        after = step(values, gain, rewards.dropped)
        drift, values = after - values, after - after[0, 0]
    earned, counted = drift.mean(axis=(0, 1))
    assert drift == pytest.approx(np.broadcast_to((earned, counted), drift.shape), rel=1e-9)
    assert policy.gap <= EXACT and policy.worth == pytest.approx(earned / counted, abs=1e-4)
    promised = expected(policy, chain=chain)
    assert promised.accuracy * (1 - promised.violation_rate) == pytest.approx(earned / counted, abs=1e-4)


def test_planning_is_reported_many_times_within_a_policy():
    reports = []

    def made():
        progress.report_to(lambda: reports.append(1))
        Chain(*slow(), variable=True)
        of_chain = len(reports)
        solve(*slow())
        of_most = len(reports) - of_chain
        policy, chain = variable(*slow())
        before = len(reports)
        expected(policy, chain=chain)
        return of_chain, of_most, len(reports) - before

    assert min(copy_context().run(made)) > 5
