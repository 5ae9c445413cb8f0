"""Exact evaluation of a policy by pairs of a run and a phase. Pure.

It solves linear equations over these pairs. The future of a decision depends on its run and the phase of the worker at
its start alone. Small workers have few such pairs, and solving their equations is faster than sweeps over all states.
"""

from __future__ import annotations

import numpy as np

from .leaving import LeavingStates
from .transitions import Chain

#: pairs of a policy at most; with more, sweeps are faster (and larger systems are solved on all cores)
MOST_PAIRS = 64


class Pairs:
    """The pairs of a policy's decisions.

    A decision in the empty queue waits for the first query, which decides next.

    Attributes:
        next: (pair, pair): of a decision and of the one that follows it, apart from the empty queue.
    """

    def __init__(self, chain: Chain, choice: np.ndarray) -> None:
        self._chain = chain
        queue, slacks, phases = chain.worker.queue, len(chain.slacks), chain.stream.phases
        self._runs, which = np.unique(runs_of(chain, choice), return_inverse=True)
        #: (queued, slack, pair): probability of the pair in a state
        self._spread = np.zeros((queue + 1, slacks, len(self._runs), phases))
        queued, slack = np.indices((queue, slacks))
        self._spread[queued + 1, slack, which.reshape(queue, slacks)] = chain.phases[1:]
        self._spread[0] = self._spread[1, -1]
        self._spread = self._spread.reshape(queue + 1, slacks, -1)
        self.next = self._ahead(self._spread, np.zeros(self._spread.shape[2]))

    @staticmethod
    def fit(chain: Chain, choice: np.ndarray) -> bool:
        """Whether the policy has few pairs."""
        return len(np.unique(runs_of(chain, choice))) * chain.stream.phases <= MOST_PAIRS

    def _ahead(self, values: np.ndarray, dropped: np.ndarray) -> np.ndarray:
        return self._chain.ahead(values, dropped)[self._runs].reshape(-1, values.shape[2])

    def values(self, gain: np.ndarray, dropped: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return relative values by state, and the mean of a decision.

        Args:
            gain: by state (queue + 1, slacks, column), of a decision.
            dropped: by column, of a dropped row.

        Returns:
            Values by state and column, 0 for the empty queue, and the mean by column.
        """
        columns = gain.shape[2]
        gain = np.concatenate((gain, np.ones((*gain.shape[:2], 1))), axis=2)
        gain[0] += gain[1, -1]
        once = self._ahead(gain, np.append(dropped, 0.0))
        count = len(self.next)
        left = np.eye(count + 1)
        left[:count, :count] -= self.next
        left[:count, count] = once[:, columns]
        left[count, :count] = -self._spread[0, 0]
        left[count, count] = gain[0, 0, columns]
        found = np.linalg.solve(left, np.concatenate((once[:, :columns], gain[:1, 0, :columns])))
        mean = found[count]
        return gain[:, :, :columns] - mean * gain[:, :, columns:] + self._spread @ found[:count], mean

    def stationary(self) -> tuple[np.ndarray, float]:
        """Return the frequencies of the states in the long run.

        Returns:
            Probabilities of the states (queued, slack), and the rows dropped a decision.
        """
        left = np.eye(len(self.next)) - self.next.T
        left[-1] = 1.0
        pairs = np.linalg.solve(left, np.eye(1, len(left), len(left) - 1)[0])
        weights = np.zeros((self._chain.run_of.max() + 1, self._chain.stream.phases))
        weights[self._runs] = np.maximum(pairs, 0.0).reshape(len(self._runs), -1)
        states, dropped = self._chain.back(weights / weights.sum())
        states[1, -1] += states[0, 0]
        every = states.sum()
        return states / every, dropped / every


def runs_of(chain: Chain, choice: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the runs by queued rows, from 1, and slack.

    For batches that leave some behind, it is the fallback's run of all that wait.

    Args:
        rows: None: all that wait.
    """
    queued = np.arange(1, chain.worker.queue + 1)[:, None]
    if rows is not None:
        choice = np.where(rows[1:] == queued, choice[1:], chain.fallback[queued])
    else:
        choice = choice[1:]
    return chain.run_of[choice, queued]


def leaving_states(chain: Chain, choice: np.ndarray, rows: np.ndarray) -> list[LeavingStates]:
    """The states in which a policy leaves queries behind, by run."""
    made = []
    for run in chain.leaving:
        states = (choice[run.states] == run.variant) & (rows[run.states] == run.rows)
        if states.any():
            made.append(LeavingStates(run, states))
    return made
