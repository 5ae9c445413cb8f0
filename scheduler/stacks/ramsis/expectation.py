"""A policy's expected accuracy and violation rate (Section 5.1). Pure.

In the long run, by equations over all states, as the paper's power iteration may need thousands of steps and more
(:mod:`.equations`).
"""

from __future__ import annotations

import numpy as np

from ..paper import Expected
from .equations import solved
from .transitions import CONTINUATION, Chain

#: Probability by which a step may still move a state. What it does to a worth is this times the largest relative value,
#: which is a query's over the chance that a queue is emptied.
STILL = 1e-15


def expected(chain: Chain, choice: np.ndarray) -> Expected:
    """The expectation under a choice of variants (queued, slack).

    Violations are bounded from above: a slack time stands for the longer ones up to the next, and a batch whose head is
    late counts as late.
    """
    queue, slacks = chain.worker.queue, len(chain.slacks)
    states, dropped = stationary(chain, choice)
    rows = np.arange(1, queue + 1)[:, None]
    in_time = chain.in_time[choice[1:], rows, np.arange(slacks)]
    counted = states[1:] * rows
    accuracy = np.array([variant.accuracy for variant in chain.worker.variants])[choice[1:]]
    kept = float((counted * in_time).sum())
    return Expected(
        accuracy=float((counted * in_time * accuracy).sum()) / kept if kept > 0 else 0.0,
        violation_rate=max(0.0, 1.0 - kept / (float(counted.sum()) + dropped)),
    )


def stationary(chain: Chain, choice: np.ndarray) -> tuple[np.ndarray, float]:
    """Chances of states (queued, slack) in the long run, and rows dropped a decision."""
    queue, slacks = chain.worker.queue, len(chain.slacks)
    runs = chain.runs(choice).ravel()
    order = np.argsort(runs, kind="stable")
    kinds, starts = np.unique(runs[order], return_index=True)
    weights = np.zeros((chain.run_of.max() + 1, chain.stream.phases))
    phases = chain.phases[1:].reshape(queue * slacks, -1)[order]

    def after(states: np.ndarray) -> tuple[np.ndarray, float]:
        flow = phases * states[1:].reshape(-1)[order, None]
        weights[kinds] = np.add.reduceat(flow, starts, axis=0)
        made, dropped = chain.back(weights)
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
