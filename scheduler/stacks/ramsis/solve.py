"""The optimal policy of a worker, by policy iteration on its average reward. Pure.

A policy is worth the share of what its decisions earn in what they count: the accuracy of all queries, late and dropped
ones counting 0. (As published, rewards count decisions instead.) With g the best such share, the policy that maximises
the mean of (earned - g * counted) is optimal, and that mean is 0. Each round improves the policy at the present g and
values (one sweep), and solves the equations of its values and g (:mod:`.equations`). The chain is the worker's, except
for a small chance that its queue is emptied (:data:`.transitions.CONTINUATION`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.progress import report

from .arrivals import Stream
from .equations import solved
from .transitions import CONTINUATION, Chain
from .worker import Worker

#: percent of accuracy within which the worth of a policy is exact
EXACT = 5e-3
#: rounds at most
ROUNDS = 100


@dataclass(frozen=True)
class Policy:
    """A policy and what it is worth.

    Attributes:
        choice: (queued, slack): the variant that runs all that wait; row 0 has no meaning.
        worth: percent, earned by counted.
        gap: percent by which its worth may be off, and a better policy be worth more.
    """

    worker: Worker
    stream: Stream
    choice: np.ndarray
    worth: float
    gap: float


def solve(chain: Chain) -> Policy:
    """Return the optimal policy within ``EXACT``, or one that is near it.

    The latter is that of ``ROUNDS`` rounds, whose ``gap`` says how far it may be.
    """
    worker = chain.worker
    rewards = Rewards(chain)
    values = np.zeros((worker.queue + 1, len(worker.slacks)))
    worth = max(variant.accuracy for variant in worker.variants)
    for number in range(ROUNDS + 1):
        choice, change = _improve(chain, rewards, values, worth)
        # The best policy's mean is between the least and the largest change; two decisions count one query at least.
        gap = 2 * change
        if number == ROUNDS or (number and gap <= EXACT):
            break
        values, worth = _evaluated(chain, rewards, choice, values, worth)
    return Policy(worker, chain.stream, choice, worth, gap)


class Rewards:
    """Columns earned and counted, ``dropped``: of a row that is dropped."""

    dropped = np.array([0.0, 1.0])

    def __init__(self, chain: Chain) -> None:
        accuracy = np.array([variant.accuracy for variant in chain.worker.variants])
        self.counted = np.arange(chain.worker.queue + 1, dtype=float)
        self.earned = accuracy[:, None, None] * chain.in_time * self.counted[None, :, None]

    def gain(self, choice: np.ndarray) -> np.ndarray:
        queued, slacks = np.indices(choice.shape)
        return np.stack((self.earned[choice, queued, slacks], self.counted[queued]), axis=2)


class Sweep:
    """Values before a fixed policy's decision, from those after it."""

    def __init__(self, chain: Chain, choice: np.ndarray) -> None:
        self._chain = chain
        self._where = [np.unique(row, return_inverse=True) for row in chain.runs(choice)]

    def __call__(self, values: np.ndarray, gain: np.ndarray, dropped: np.ndarray) -> np.ndarray:
        ahead = self._chain.ahead(values, dropped)
        made = np.empty_like(values)
        # An empty queue waits for its first query, and then decides.
        made[0] = gain[0] + values[1, -1]
        slacks = np.arange(values.shape[1])
        for queued, (runs, which) in enumerate(self._where, 1):
            future = self._chain.phases[queued] @ ahead[runs]
            made[queued] = gain[queued] + future[which, slacks]
        return made


def _improve(chain: Chain, rewards: Rewards, values: np.ndarray, worth: float) -> tuple[np.ndarray, float]:
    """Return the best choice at these values, and the largest change.

    The change is the most by which a sweep with them changes the values, up or down.
    """
    report()
    flat, dropped = CONTINUATION * values[:, :, None], rewards.dropped @ np.array([[1.0], [-worth]])
    ahead = chain.ahead(flat, dropped)[:, :, 0]
    choice, best = np.zeros(values.shape, int), np.empty(values.shape)
    best[0] = flat[1, -1, 0]
    for queued in range(1, len(values)):
        runs = chain.run_of[:, queued]
        able = np.nonzero(runs >= 0)[0]
        future = ahead[runs[able]] @ chain.phases[queued].T
        now = rewards.earned[able, queued] - worth * rewards.counted[queued] + future
        now = np.where(chain.allowed[able, queued], now, -np.inf)
        choice[queued] = able[now.argmax(axis=0)]
        best[queued] = now.max(axis=0)
    return choice, float(np.abs(best - values).max())


def _evaluated(
    chain: Chain, rewards: Rewards, choice: np.ndarray, values: np.ndarray, worth: float
) -> tuple[np.ndarray, float]:
    gain, dropped = rewards.gain(choice), rewards.dropped
    step, shape = Sweep(chain, choice), values.shape
    after = step(np.zeros((*shape, 2)), gain, dropped)
    earned, counted = after[:, :, 0].ravel(), after[:, :, 1].ravel()
    nothing, none = np.zeros((*shape, 1)), np.zeros(1)

    def product(unknowns: np.ndarray) -> np.ndarray:
        # All values are 0 in the empty queue, whose place has the worth.
        worth, values = unknowns[0], unknowns.copy()
        values[0] = 0.0
        return values - step(CONTINUATION * values.reshape(*shape, 1), nothing, none).ravel() + worth * counted

    start = (values - values[0, 0]).ravel()
    start[0] = worth
    unknowns = solved(product, earned, start, EXACT / 40)
    worth, unknowns[0] = float(unknowns[0]), 0.0
    return unknowns.reshape(shape), worth
