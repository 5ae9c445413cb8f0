"""Transitions of a policy's states against the published sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scheduler.stacks.ramsis.arrivals import Stream, round_robin
from scheduler.stacks.ramsis.transitions import Chain, Slabs
from scheduler.stacks.ramsis.worker import worker
from tests.stacks.ramsis.workers import linear, three

pytestmark = pytest.mark.wide


def published(chain, queued: int, slack: int, seconds: float, then: int, then_slack: int) -> float:
    """Eq. 2 as printed: arrivals in the intervals A to D, one by one."""
    stream, slacks, slo = chain.stream, chain.worker.slacks, chain.worker.slo_s
    workers, rate = stream.phases, stream.rate

    def chance(count: int, length: float) -> float:
        mean = rate * length
        return math.exp(-mean) * mean**count / math.factorial(count) if count >= 0 else 0.0

    a = slo - slacks[slack]
    b = max(0.0, seconds + slacks[then_slack] - slo)
    c = max(0.0, seconds + slacks[then_slack + 1] - slo - b)
    d = seconds - c - b
    total = given_ = 0.0
    for in_a in range((queued - 1) * workers, queued * workers):
        given_ += chance(in_a, a)
        phase = in_a % workers
        for in_b in range(workers - phase):
            for in_c in range(workers - phase - in_b, (then + 1) * workers - phase - in_b):
                for in_d in range(
                    max(0, then * workers - phase - in_b - in_c), (then + 1) * workers - phase - in_b - in_c
                ):
                    total += chance(in_a, a) * chance(in_b, b) * chance(in_c, c) * chance(in_d, d)
    return total / given_


def test_they_are_the_published_sums_over_four_intervals():
    variants = [linear("fast", 60, 10, 10, 4), linear("slow", 90, 21, 20, 4)]
    chain = Chain(worker(0.1, variants, 5, 4), round_robin(90.0, 3))
    seconds = chain.worker.seconds()
    for variant, queued, slack in ((0, 1, 2), (0, 3, 3), (1, 2, 4), (1, 1, 4)):
        run = chain.run_of[variant, queued]
        weights = np.zeros((chain.run_of.max() + 1, 3))
        weights[run] = chain.phases[queued, slack]
        states, _ = chain.back(weights)
        for then in (1, 2, 3):
            for then_slack in range(5):
                wanted = published(chain, queued, slack, seconds[variant, queued], then, then_slack)
                assert states[then, then_slack] == pytest.approx(wanted, abs=1e-9)


def test_states_beyond_the_longest_queue_are_the_full_one():
    chain = Chain(three(queue=2), round_robin(900.0, 3))
    weights = np.zeros((chain.run_of.max() + 1, 3))
    weights[chain.run_of[0, 2], 0] = 1
    states, dropped = chain.back(weights)
    # 900 rows/s for 13 ms, each third one here: 11.7 / 3, less 1/3 for the incomplete third, of which 2 have a place.
    assert states[2, 0] > 0.7
    assert dropped == pytest.approx(11.7 / 3 - 1 / 3 - 2, abs=0.1)


@pytest.mark.parametrize("rate", [1.0, 300.0, 50_000.0])
@pytest.mark.parametrize("queue", [1, 4, 32])
def test_every_query_of_a_slab_is_queued_or_counted_as_dropped(rate, queue):
    lengths, after = np.array([0.01, 0.001, 0.01]), np.array([0.0, 0.05, 0.3])
    slabs = Slabs.of(Stream(rate), queue, lengths, after)
    some = 1.0 - slabs.none[:, 0, 0]
    assert slabs.first[:, 0].sum(axis=1) + slabs.full[:, 0] == pytest.approx(some, abs=1e-9)
    queued = slabs.first[:, 0] @ np.arange(1, queue + 1) + slabs.full[:, 0] * queue
    assert queued + slabs.dropped[:, 0] == pytest.approx(rate * (lengths + some * after), rel=1e-6)
