"""Policies: optimal, never late by choice, and worth what is expected of them."""

from __future__ import annotations

import itertools
from contextvars import copy_context

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler import progress
from scheduler.stacks.paper import Expected
from scheduler.stacks.ramsis.arrivals import round_robin
from scheduler.stacks.ramsis.expectation import expected, stationary
from scheduler.stacks.ramsis.solve import EXACT, Policy, solve
from scheduler.stacks.ramsis.transitions import Chain
from scheduler.stacks.ramsis.worker import WorkerVariant, undominated, worker
from tests.examples import examples
from tests.stacks.ramsis.workers import linear, observed, three

pytestmark = pytest.mark.wide


def solved(made, rate: float, workers: int) -> tuple[Policy, Expected]:
    chain = Chain(made, round_robin(rate, workers))
    policy = solve(chain)
    return policy, expected(chain, policy.choice)


def worth(chain: Chain, choice: np.ndarray) -> float:
    """Earned by counted in the long run, from the states' probabilities."""
    states, counted = stationary(chain, choice)
    earned = 0.0
    for queued in range(1, chain.worker.queue + 1):
        for slack, variant in enumerate(choice[queued]):
            weight = states[queued, slack] * queued
            counted += weight
            earned += weight * chain.worker.variants[variant].accuracy * chain.in_time[variant, queued, slack]
    return earned / counted


@pytest.mark.parametrize("rate", [40.0, 110.0, 150.0])
def test_no_other_policy_of_a_small_worker_is_worth_more(rate):
    variants = [linear("fast", 60, 10, 10, 3), linear("slow", 90, 25, 18, 3)]
    chain = Chain(worker(0.1, variants, 4, 3), round_robin(rate, 2))
    found = solve(chain)
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
        best = max(best, worth(chain, choice))
    assert len(free) >= 4
    assert worth(chain, found.choice) == pytest.approx(best, abs=2 * EXACT)
    assert found.worth == pytest.approx(best, abs=2 * EXACT)


@examples(12)
@given(
    st.floats(5, 400),
    st.integers(1, 12),
    st.one_of(st.none(), st.integers(2, 40)),
    st.lists(st.tuples(st.floats(1, 30), st.floats(1, 20), st.integers(1, 8)), min_size=1, max_size=4),
)
def test_a_policy_is_late_only_where_no_variant_is_in_time(rate, workers, lengths, times):
    variants = [linear(f"v{i}", 50 + 10 * i, base, row, most) for i, (base, row, most) in enumerate(times)]
    made = worker(0.1, variants, lengths, 8)
    policy = solve(Chain(made, round_robin(rate, workers)))
    seconds = made.seconds()
    for queued in range(1, made.queue + 1):
        for slack, variant in zip(made.slacks, policy.choice[queued], strict=True):
            assert np.isfinite(seconds[variant, queued])
            if seconds[variant, queued] > slack + 1e-12:
                assert seconds[:, queued].min() > slack
                assert seconds[variant, queued] == seconds[:, queued].min()


@pytest.mark.parametrize("rate, workers", [(60.0, 1), (700.0, 10), (1_000.0, 10)])
def test_the_expectation_is_close_to_a_simulation(rate, workers):
    policy, promised = solved(three(lengths=100), rate, workers)
    accuracy, late = observed(policy, 60_000, seed=7)
    assert accuracy == pytest.approx(promised.accuracy, abs=0.6)
    assert late <= promised.violation_rate + 0.002
    assert late == pytest.approx(promised.violation_rate, abs=0.02)


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
)
@example(0.05, [(0.3, 0.05, 62.0, 16), (0.1, 0.04, 55.0, 16)], 60, 0.6)
@example(0.05, [(0.005, 0.0005, 60.0, 4), (0.1, 0.4, 90.0, 16)], 1, 0.5)
def test_policies_are_exact_however_slowly_a_queue_changes(slo, times, workers, load):
    variants = [
        WorkerVariant(f"v{i}", accuracy, tuple(slo * (base + row * rows) for rows in range(1, most + 1)))
        for i, (base, row, accuracy, most) in enumerate(times)
    ]
    made = worker(slo, variants, 20, 16)
    if made is None:
        return
    policy, promised = solved(made, load * made.capacity() * workers, workers)
    assert policy.gap <= EXACT
    assert promised.accuracy * (1 - promised.violation_rate) == pytest.approx(policy.worth, abs=2 * EXACT)


def test_planning_is_reported_many_times_within_a_policy():
    reports = []

    def made():
        progress.report_to(lambda: reports.append(1))
        # A worker whose queue changes slowly: it serves about as fast as queries come.
        variants = [linear(f"v{i}", 70 + 8 * i, 0.143 * 1.77**i, 2.28 * 1.77**i, 16) for i in range(4)]
        chain = Chain(worker(0.5, variants, 20, 16), round_robin(80.0, 1))
        of_chain = len(reports)
        policy = solve(chain)
        of_policy = len(reports) - of_chain
        expected(chain, policy.choice)
        return of_chain, of_policy, len(reports) - of_policy - of_chain

    # A chain of a single phase is made in a few parts, a policy and its expectation in tens.
    assert min(copy_context().run(made)) > 2


def test_less_load_is_served_more_accurately():
    found = [solved(three(), rate, 10)[1].accuracy for rate in (100, 500, 900, 1_300)]
    assert found == sorted(found, reverse=True) and found[0] > 85 and found[-1] < 72


def test_both_discretisations_promise_much_the_same():
    fixed, by_models = (solved(three(lengths=lengths), 900.0, 10)[1] for lengths in (100, None))
    assert by_models.accuracy == pytest.approx(fixed.accuracy, abs=1.5)


def test_only_undominated_variants_are_kept():
    fast, slow, worse = linear("fast", 60, 5, 4), linear("slow", 90, 25, 16), linear("worse", 59, 6, 5)
    larger = WorkerVariant("larger", 58, tuple((9 + 2 * rows) / 1e3 for rows in range(1, 9)))
    assert undominated([worse, slow, fast]) == (fast, slow)
    assert undominated([worse, slow, fast, larger]) == (fast, larger, slow)  # faster for large batches
    assert worker(0.02, [slow]) is None
