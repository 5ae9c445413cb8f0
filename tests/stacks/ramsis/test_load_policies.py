"""Policies for a range of loads, and the loads that single variants carry."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.stacks.ramsis.arrivals import round_robin
from scheduler.stacks.ramsis.load_limits import jellyfish, model_switching
from scheduler.stacks.ramsis.load_policies import ABOVE, ANCHORS, STEP, anchors, evaluated, policies, steps
from scheduler.stacks.ramsis.solve import solve
from scheduler.stacks.ramsis.transitions import Chain
from tests.stacks.ramsis.workers import three

pytestmark = pytest.mark.wide

WORKERS = 4


@given(st.floats(1, 1e5), st.floats(0, 1e5))
def test_anchors_are_around_the_demand(capacity, demand):
    found = anchors(capacity, demand)
    lowest = capacity * 2.0 ** (-ANCHORS / 2)
    assert len(found) >= 2 and found == sorted(found)
    assert found[0] <= demand or found[0] == pytest.approx(lowest)
    assert found[-1] >= min(ABOVE * demand, capacity) * (1 - 1e-9)


def test_neighbours_differ_by_little_accuracy_and_none_is_made_twice():
    made = three(lengths=40)
    found = policies(made, WORKERS, 400.0)
    loads = [one.policy.load for one in found]
    accuracies = [one.expected.accuracy for one in found]
    assert loads == sorted(set(loads)) and len(found) > 5
    close = [high / low <= 1.03 for low, high in itertools.pairwise(loads)]
    near = [abs(low - high) <= STEP for low, high in itertools.pairwise(accuracies)]
    assert all(one or other for one, other in zip(close, near, strict=True))
    before = evaluated.cache_info().misses
    policies(made, WORKERS, 405.0)
    assert evaluated.cache_info().misses == before


def test_whatever_time_there_is_the_load_next_above_the_demand_has_its_policy():
    made, demand = three(lengths=12), 400.0
    whole = policies(made, WORKERS, demand)
    above = min(load for load in anchors(made.capacity() * WORKERS, demand) if load >= demand)
    for most in range(len(whole) + 1):
        left = iter(range(most))
        some = policies(made, WORKERS, demand, in_time=lambda left=left: next(left, None) is not None)
        loads = [one.policy.load for one in some]
        assert len(some) <= most + 1 and above in loads and loads == sorted(loads)
        assert set(loads) <= {one.policy.load for one in whole}


def test_modelswitching_measures_the_fastest_variant_in_any_case():
    (policy,) = model_switching(three(), WORKERS, in_time=lambda: False)
    assert policy.choose(1, 0.0) == 0
    assert policy in model_switching(three(), WORKERS)


def test_steps_name_the_choice_of_every_state():
    policy = solve(Chain(three(lengths=40), round_robin(300.0, WORKERS)))
    for queued, row in enumerate(steps(policy), 1):
        assert row[0][0] == 0 and [least for least, _ in row] == sorted({least for least, _ in row})
        for slack, choice in zip(policy.worker.slacks, policy.choice[queued], strict=True):
            assert [place for least, place in row if least <= slack + 1e-6][-1] == choice


def test_jellyfish_counts_on_batches_within_half_of_the_slo():
    found = jellyfish(three(), WORKERS)
    # slow: 41 ms alone; middle: 4 rows in 44 ms; fast: 8 rows in 37 ms
    loads = [WORKERS / 0.041, WORKERS * 4 / 0.044, WORKERS * 8 / 0.037]
    assert [policy.load for policy in found] == pytest.approx(loads)
    assert [policy.choose(1, 0.0) for policy in found] == [2, 1, 0]


def test_modelswitching_trusts_measured_response_times():
    found = model_switching(three(), WORKERS)
    assert [policy.choose(1, 0.0) for policy in found] == [2, 1, 0]
    loads = [policy.load for policy in found]
    assert loads == sorted(loads) and loads[-1] < WORKERS * 8 / 0.037
    assert found == model_switching(three(), WORKERS)
