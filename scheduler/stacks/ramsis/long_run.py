"""Frequencies of a policy's states in the long run. Pure.

By equations over all states, as the paper's power iteration may need thousands of steps and more (:mod:`.equations`).
"""

from __future__ import annotations

import numpy as np

from .equations import solved
from .sweep import CONTINUATION, leaving_states, runs_of
from .transitions import Chain

#: Probability by which a step may still move a state. What it does to a worth is this times the largest relative value,
#: which is a query's over the chance that a queue is emptied.
STILL = 1e-15


def stationary(chain: Chain, choice: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the frequencies of the states in the long run.

    Returns:
        Probabilities of the states (queued, slack), and the rows dropped a decision.
    """
    leaving = leaving_states(chain, choice, rows)
    queue, slacks = chain.worker.queue, len(chain.slacks)
    runs = runs_of(chain, choice, rows).ravel()
    order = np.argsort(runs, kind="stable")
    kinds, starts = np.unique(runs[order], return_index=True)
    weights = np.zeros((chain.run_of.max() + 1, chain.stream.phases))
    takes_all = (rows == chain.worker.all_rows())[1:].ravel()
    phases = (chain.phases[1:].reshape(queue * slacks, -1) * takes_all[:, None])[order]

    def after(states: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the next states, and the rows dropped on the way."""
        flow = phases * states[1:].reshape(-1)[order, None]
        weights[kinds] = np.add.reduceat(flow, starts, axis=0)
        made, dropped = chain.back(weights)
        for some in leaving:
            dropped += some.back(states[some.queued, some.slack], made)
        made[1, -1] += states[0, 0]
        return made, dropped

    states = np.zeros((queue + 1, slacks))
    states[0, 0] = 1.0
    # The empty queue is added once for all probabilities together, which makes the solution the only one.
    first = states.ravel()

    def product(found: np.ndarray) -> np.ndarray:
        return found - CONTINUATION * (after(found.reshape(states.shape))[0].ravel() - found.sum() * first)

    found = solved(product, first, first, STILL).reshape(states.shape).clip(min=0.0)
    states = found / found.sum()
    return states, after(states)[1]
