"""Frequencies of a policy's states in the long run. Pure.

Power iteration, as in the paper, or exactly where few pairs of run and phase decide.
"""

from __future__ import annotations

import numpy as np

from .pairs import Pairs, leaving_states, runs_of
from .transitions import Chain

#: power iteration ends when no state's probability moves by more, or after this many steps
STILL, STEPS = 1e-7, 2_000
#: part of the states' probabilities that stays in a step
LAZY = 0.1


def stationary(chain: Chain, choice: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the frequencies of the states in the long run.

    Returns:
        Probabilities of the states (queued, slack), and the rows dropped a decision.
    """
    leaving = list(leaving_states(chain, choice, rows))
    if not leaving and Pairs.fit(chain, choice):
        return Pairs(chain, choice).stationary()
    queue, slacks = chain.worker.queue, len(chain.slacks)
    runs = runs_of(chain, choice, rows).ravel()
    order = np.argsort(runs, kind="stable")
    kinds, starts = np.unique(runs[order], return_index=True)
    weights = np.zeros((chain.run_of.max() + 1, chain.stream.phases))
    takes_all = (rows == chain.worker.all_rows())[1:].ravel()
    phases = (chain.phases[1:].reshape(queue * slacks, -1) * takes_all[:, None])[order]
    states = np.zeros((queue + 1, slacks))
    states[0, 0] = 1.0
    dropped = 0.0
    for _ in range(STEPS):
        flow = phases * states[1:].reshape(-1)[order, None]
        weights[kinds] = np.add.reduceat(flow, starts, axis=0)
        after, dropped = chain.back(weights)
        for run, here in leaving:
            dropped += run.back(states[run.queues, run.slack :] * here, after)
        after[1, -1] += states[0, 0]
        # At low load the chain alternates between an empty queue and a single query, and would never come to rest.
        after = LAZY * states + (1 - LAZY) * after
        after /= after.sum()
        moved = np.abs(after - states).max()
        states = after
        if moved < STILL:
            break
    return states, dropped
