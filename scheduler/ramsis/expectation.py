"""Expected accuracy and violation rate of a policy in the long run (Section 5.1). Pure.

Power iteration, as in the paper, or exactly where few pairs of run and phase decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .pairs import Pairs, runs_of
from .solve import Policy, Weight
from .transitions import Chain

#: power iteration ends when no state's probability moves by more, or after so many steps
STILL, STEPS = 1e-7, 2_000
#: part of the states' probabilities that stays in a step
LAZY = 0.1


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
    chain = chain or Chain(policy.worker, policy.stream)
    queue, slacks = policy.worker.queue, len(chain.slacks)
    states, dropped = stationary(chain, policy.choice)
    queued = np.arange(1, queue + 1)
    in_time = chain.in_time[policy.choice[1:], queued[:, None], np.arange(slacks)]
    rows = queued[:, None] if weigh == "queries" else np.ones((queue, 1))
    counted = states[1:] * rows
    accuracy = np.array([variant.accuracy for variant in policy.worker.variants])[policy.choice[1:]]
    kept = float((counted * in_time).sum())
    every = float(counted.sum()) + (dropped if weigh == "queries" else 0.0)
    return Expected(
        accuracy=float((counted * in_time * accuracy).sum()) / kept if kept > 0 else 0.0,
        violation_rate=max(0.0, 1.0 - kept / every),
        full=float(states[queue, 0]),
    )


def stationary(chain: Chain, choice: np.ndarray) -> tuple[np.ndarray, float]:
    """Probabilities of the states (queued, slack), and the rows dropped a decision, in the long run."""
    if Pairs.fit(chain, choice):
        return Pairs(chain, choice).stationary()
    queue, slacks = chain.worker.queue, len(chain.slacks)
    runs = runs_of(chain, choice).ravel()
    order = np.argsort(runs, kind="stable")
    kinds, starts = np.unique(runs[order], return_index=True)
    weights = np.zeros((chain.run_of.max() + 1, chain.stream.phases))
    phases = chain.phases[1:].reshape(queue * slacks, -1)[order]
    states = np.zeros((queue + 1, slacks))
    states[0, 0] = 1.0
    dropped = 0.0
    for _ in range(STEPS):
        flow = phases * states[1:].reshape(-1)[order, None]
        weights[kinds] = np.add.reduceat(flow, starts, axis=0)
        after, dropped = chain.back(weights)
        after[1, -1] += states[0, 0]
        # At low load the chain alternates between an empty queue and a single query, and would never come to rest.
        after = LAZY * states + (1 - LAZY) * after
        after /= after.sum()
        moved = np.abs(after - states).max()
        states = after
        if moved < STILL:
            break
    return states, dropped
