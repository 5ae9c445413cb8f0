"""Values before a fixed policy's decision, from those after it. Pure."""

from __future__ import annotations

import numpy as np

from .leaving import LeavingStates
from .transitions import Chain

#: Continuation probability of a worker after a decision, by which values are scaled; else its queue is emptied. A full
#: queue that no variant serves in time may stay full for ages, so that values would have no digits left for the others.
CONTINUATION = 1 - 1e-6


class Sweep:
    def __init__(self, chain: Chain, choice: np.ndarray, rows: np.ndarray) -> None:
        self._chain = chain
        self._leaving = leaving_states(chain, choice, rows)
        self._where = [np.unique(row, return_inverse=True) for row in runs_of(chain, choice, rows)]

    def __call__(self, values: np.ndarray, gain: np.ndarray, dropped: np.ndarray) -> np.ndarray:
        ahead = self._chain.ahead(values, dropped)
        made = np.empty_like(values)
        # An empty queue waits for its first query, and then decides.
        made[0] = gain[0] + values[1, -1]
        slacks = np.arange(values.shape[1])
        for queued, (runs, which) in enumerate(self._where, 1):
            future = self._chain.phases[queued] @ ahead[runs]
            made[queued] = gain[queued] + future[which, slacks]
        for leaving in self._leaving:
            made[leaving.queued, leaving.slack] = gain[leaving.queued, leaving.slack] + leaving.ahead(values, dropped)
        return made


def runs_of(chain: Chain, choice: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """By queued rows, from 1, and slack; of batches that leave some, the fallback's."""
    queued = np.arange(1, chain.worker.queue + 1)[:, None]
    return chain.run_of[np.where(rows[1:] == queued, choice[1:], chain.fallback[queued]), queued]


def leaving_states(chain: Chain, choice: np.ndarray, rows: np.ndarray) -> list[LeavingStates]:
    made = []
    for run in chain.leaving:
        states = (choice[run.states] == run.variant) & (rows[run.states] == run.rows)
        if states.any():
            made.append(LeavingStates(run, states))
    return made
