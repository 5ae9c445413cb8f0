"""A policy's expected accuracy and violation rate (Section 5.1). Pure.

In the long run, by equations over all states, as the paper's power iteration may need thousands of steps and more
(:mod:`.equations`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .equations import solved
from .solve import Policy, Weight
from .sweep import CONTINUATION, leaving_states, runs_of
from .transitions import Chain

#: Probability by which a step may still move a state. What it does to a worth is this times the largest relative value,
#: which is a query's over the chance that a queue is emptied.
STILL = 1e-15


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


def stationary(chain: Chain, choice: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Chances of states (queued, slack) in the long run, and rows dropped a decision."""
    leaving = leaving_states(chain, choice, rows)
    queue, slacks = chain.worker.queue, len(chain.slacks)
    runs = runs_of(chain, choice, rows).ravel()
    order = np.argsort(runs, kind="stable")
    kinds, starts = np.unique(runs[order], return_index=True)
    weights = np.zeros((chain.run_of.max() + 1, chain.stream.phases))
    takes_all = (rows == chain.worker.all_rows())[1:].ravel()
    phases = (chain.phases[1:].reshape(queue * slacks, -1) * takes_all[:, None])[order]

    def after(states: np.ndarray) -> tuple[np.ndarray, float]:
        flow = phases * states[1:].reshape(-1)[order, None]
        weights[kinds] = np.add.reduceat(flow, starts, axis=0)
        made, dropped = chain.back(weights)
        for left in leaving:
            dropped += left.back(states[left.queued, left.slack], made)
        made[1, -1] += states[0, 0]
        return made, dropped

    states = np.zeros((queue + 1, slacks))
    states[0, 0] = 1.0
    # The empty queue is added once for all probabilities together, which makes the solution the only one.
    first = states.ravel()

    def product(flat: np.ndarray) -> np.ndarray:
        return flat - CONTINUATION * (after(flat.reshape(states.shape))[0].ravel() - flat.sum() * first)

    flat = solved(product, first, first, STILL).reshape(states.shape).clip(min=0.0)
    states = flat / flat.sum()
    return states, after(states)[1]
