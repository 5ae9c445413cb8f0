"""Frequencies of a policy's states in the long run. Pure.

Power iteration, as in the paper, exactly where few pairs of run and phase decide, or by equations over all states where
queries are left behind, as the chain may then need thousands of steps to come to rest.
"""

from __future__ import annotations

import numpy as np

from scheduler.progress import report

from .equations import solved
from .pairs import Pairs, leaving_states, runs_of
from .transitions import Chain

#: power iteration ends when no state's probability moves by more, or after this many steps
STILL, STEPS = 1e-7, 2_000
#: probability by which a step may still move a state where equations are solved
STILL_EXACTLY = 1e-10
#: part of the states' probabilities that stays in a step
LAZY = 0.1


def stationary(chain: Chain, choice: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the frequencies of the states in the long run.

    Returns:
        Probabilities of the states (queued, slack), and the rows dropped a decision.
    """
    leaving = leaving_states(chain, choice, rows)
    if not leaving and Pairs.fit(chain, choice):
        return Pairs(chain, choice).stationary()
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
    if leaving:
        # The empty queue is added once for all probabilities together, which makes the solution the only one.
        first = states.ravel()

        def product(found: np.ndarray) -> np.ndarray:
            return found - after(found.reshape(states.shape))[0].ravel() + found.sum() * first

        found = solved(product, first, first, STILL_EXACTLY).reshape(states.shape).clip(min=0.0)
        states = found / found.sum()
        return states, after(states)[1]
    dropped = 0.0
    for _ in range(STEPS):
        report()
        following, dropped = after(states)
        # At low load the chain alternates between an empty queue and a single query, and would never come to rest.
        following = LAZY * states + (1 - LAZY) * following
        following /= following.sum()
        moved = np.abs(following - states).max()
        states = following
        if moved < STILL:
            break
    return states, dropped
