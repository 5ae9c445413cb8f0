"""A policy's expected accuracy and violation rate (Section 5.1). Pure.

They are those in the long run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .long_run import stationary
from .solve import Policy, Weight
from .transitions import Chain


@dataclass(frozen=True)
class Expected:
    """A policy's promise, as long as arrivals are those that it was made for.

    Attributes:
        accuracy: percent, of queries in time; 0 where none is.
        violation_rate: share (0 to 1) of queries that are late or dropped. An upper bound: a slack time stands for the
            longer ones up to the next, and a batch whose head is late counts as late.
        full: probability of the full-queue state.
    """

    accuracy: float
    violation_rate: float
    full: float


def expected(policy: Policy, weigh: Weight = "queries", chain: Chain | None = None) -> Expected:
    """The expectation under the policy.

    Args:
        weigh: ``queries``: a state counts as many times as its batch has queries; ``decisions``: once, as published.
    """
    chain = chain or Chain(policy.worker, policy.stream, bool((policy.rows < policy.worker.all_rows()).any()))
    queue, slacks = policy.worker.queue, len(chain.slacks)
    states, dropped = stationary(chain, policy.choice, policy.rows)
    rows = policy.rows[1:]
    in_time = chain.in_time[policy.choice[1:], rows, np.arange(slacks)]
    counted = states[1:] * (rows if weigh == "queries" else 1.0)
    accuracy = np.array([variant.accuracy for variant in policy.worker.variants])[policy.choice[1:]]
    kept = float((counted * in_time).sum())
    every = float(counted.sum()) + (dropped if weigh == "queries" else 0.0)
    return Expected(
        accuracy=float((counted * in_time * accuracy).sum()) / kept if kept > 0 else 0.0,
        violation_rate=max(0.0, 1.0 - kept / every),
        full=float(states[queue, 0]),
    )
