"""Policies: optimal, never late by choice, and worth what is expected of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.stacks.ramsis.arrivals import round_robin, shortest_queue
from scheduler.stacks.ramsis.expectation import expected, stationary
from scheduler.stacks.ramsis.solve import EXACT, Policy, solve
from scheduler.stacks.ramsis.transitions import Chain
from scheduler.stacks.ramsis.worker import WorkerVariant, undominated, worker
from tests.examples import examples
from tests.stacks.ramsis.workers import linear, observed, three

pytestmark = pytest.mark.wide


def worth(chain: Chain, choice: np.ndarray, rows: np.ndarray, by_queries: bool) -> float:
    """Earned by counted in the long run, from the states' probabilities."""
    states, dropped = stationary(chain, choice, rows)
    earned, counted = 0.0, dropped if by_queries else states[0].sum()
    for queued in range(1, chain.worker.queue + 1):
        for slack, variant in enumerate(choice[queued]):
            batch = rows[queued, slack]
            weight = states[queued, slack] * (batch if by_queries else 1)
            counted += weight
            earned += weight * chain.worker.variants[variant].accuracy * chain.in_time[variant, batch, slack]
    return earned / counted


@pytest.mark.parametrize("weigh", ["queries", "decisions"])
@pytest.mark.parametrize("rate", [40.0, 110.0, 150.0])
def test_no_other_policy_of_a_small_worker_is_worth_more(weigh, rate):
    variants = [linear("fast", 60, 10, 10, 3), linear("slow", 90, 25, 18, 3)]
    chain = Chain(worker(0.1, variants, 4, 3), round_robin(rate, 2))
    found = solve(chain.worker, chain.stream, weigh, chain)
    free = [
        (queued, slack)
        for queued in range(1, 4)
        for slack in range(len(chain.slacks))
        if chain.allowed[:, queued, slack].sum() > 1
    ]
    base = np.broadcast_to(chain.allowed.argmax(axis=0), (4, 5))
    best = 0.0
    for some in itertools.product((0, 1), repeat=len(free)):
        choice = base.copy()
        for (queued, slack), variant in zip(free, some, strict=True):
            choice[queued, slack] = variant
        best = max(best, worth(chain, choice, chain.worker.all_rows(), weigh == "queries"))
    assert len(free) >= 4
    assert worth(chain, found.choice, found.rows, weigh == "queries") == pytest.approx(best, abs=2 * EXACT)
    assert found.worth == pytest.approx(best, abs=2 * EXACT)


@examples(12)
@given(
    st.floats(5, 400),
    st.integers(1, 12),
    st.one_of(st.none(), st.integers(2, 40)),
    st.sampled_from(["queries", "decisions"]),
    st.lists(st.tuples(st.floats(1, 30), st.floats(1, 20), st.integers(1, 8)), min_size=1, max_size=4),
)
def test_a_policy_is_late_only_where_no_variant_is_in_time(rate, workers, lengths, weigh, times):
    variants = [linear(f"v{i}", 50 + 10 * i, base, row, most) for i, (base, row, most) in enumerate(times)]
    made = worker(0.1, variants, lengths, 8)
    chain = Chain(made, round_robin(rate, workers))
    policy = solve(made, chain.stream, weigh, chain)
    seconds = made.seconds()
    for queued in range(1, made.queue + 1):
        for slack, variant in zip(made.slacks, policy.choice[queued], strict=True):
            assert np.isfinite(seconds[variant, queued])
            if seconds[variant, queued] > slack + 1e-12:
                assert seconds[:, queued].min() > slack
                assert seconds[variant, queued] == seconds[:, queued].min()


@pytest.mark.parametrize("rate, workers, shape", [(60.0, 1, 1.0), (700.0, 10, 1.0), (1_000.0, 10, 1.0)])
def test_the_expectation_is_close_to_a_simulation(rate, workers, shape):
    stream = round_robin(rate, workers, shape)
    policy = solve(three(lengths=100), stream)
    promised = expected(policy)
    accuracy, late = observed(policy, stream, 60_000, seed=7)
    assert accuracy == pytest.approx(promised.accuracy, abs=0.6)
    assert late <= promised.violation_rate + 0.002
    assert late == pytest.approx(promised.violation_rate, abs=0.02)


def test_the_expectation_is_the_worth_that_the_solver_found():
    for weigh, rate in (("queries", 900.0), ("queries", 1_300.0)):
        policy = solve(three(), round_robin(rate, 10), weigh)
        promised = expected(policy)
        assert promised.accuracy * (1 - promised.violation_rate) == pytest.approx(policy.worth, abs=2 * EXACT)


@examples(30)
@given(
    st.sampled_from([0.05, 0.5]),
    st.lists(
        st.tuples(st.floats(0.001, 0.5), st.floats(0.001, 2.0), st.floats(40, 99), st.sampled_from([1, 4, 8, 16])),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([1, 5, 20, 60]),
    st.sampled_from([0.05, 0.3, 0.6, 0.8, 0.95]),
    st.sampled_from([1.0, 0.3]),
    st.booleans(),
)
@example(0.05, [(0.3, 0.05, 62.0, 16), (0.1, 0.04, 55.0, 16)], 60, 0.6, 1.0, False)
@example(0.05, [(0.005, 0.0005, 60.0, 4), (0.1, 0.4, 90.0, 16)], 1, 0.5, 1.0, True)
def test_policies_are_exact_however_slowly_a_queue_changes(slo, times, workers, load, shape, variable):
    variants = [
        WorkerVariant(f"v{i}", accuracy, tuple(slo * (base + row * rows) for rows in range(1, most + 1)))
        for i, (base, row, accuracy, most) in enumerate(times)
    ]
    made = worker(slo, variants, 20, 16)
    if made is None:
        return
    stream = round_robin(load * made.capacity() * workers, workers, shape)
    chain = Chain(made, stream, variable)
    policy = solve(made, stream, chain=chain)
    assert policy.gap <= EXACT
    promised = expected(policy, chain=chain)
    assert promised.accuracy * (1 - promised.violation_rate) == pytest.approx(policy.worth, abs=2 * EXACT)


def test_less_load_is_served_more_accurately():
    found = [expected(solve(three(), round_robin(rate, 10))).accuracy for rate in (100, 500, 900, 1_300)]
    assert found == sorted(found, reverse=True) and found[0] > 85 and found[-1] < 72


def test_rewards_by_decision_cost_accuracy_of_queries():
    stream = round_robin(1_000.0, 10)
    by_queries, by_decisions = (expected(solve(three(), stream, weigh)) for weigh in ("queries", "decisions"))
    assert by_queries.accuracy * (1 - by_queries.violation_rate) > by_decisions.accuracy * (
        1 - by_decisions.violation_rate
    )


def test_both_discretisations_promise_much_the_same():
    stream = round_robin(900.0, 10)
    fixed, by_models = (expected(solve(three(lengths=lengths), stream)) for lengths in (100, None))
    assert by_models.accuracy == pytest.approx(fixed.accuracy, abs=1.5)


def test_shortest_queue_first_lets_long_queues_drain():
    made = three()
    policy = solve(made, shortest_queue(1_000.0, 10, made.service_rate(100.0)))
    assert isinstance(policy, Policy) and expected(policy).violation_rate < 0.01


def test_bursty_arrivals_cost_accuracy():
    smooth, bursty = (expected(solve(three(), round_robin(900.0, 10, shape))) for shape in (1.0, 0.1))
    assert bursty.accuracy * (1 - bursty.violation_rate) < smooth.accuracy * (1 - smooth.violation_rate)


def test_only_undominated_variants_are_kept():
    fast, slow, worse = linear("fast", 60, 5, 4), linear("slow", 90, 25, 16), linear("worse", 59, 6, 5)
    larger = WorkerVariant("larger", 58, tuple((9 + 2 * rows) / 1e3 for rows in range(1, 9)))
    assert undominated([worse, slow, fast]) == (fast, slow)
    assert undominated([worse, slow, fast, larger]) == (fast, larger, slow)  # faster for large batches
    assert worker(0.02, [slow]) is None
