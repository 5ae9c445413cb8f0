"""The optimal policy of a worker, by policy iteration on its average reward. Pure.

A policy is worth the share of what its decisions earn in what they count: by queries (the default) the accuracy of all
queries, late and dropped ones counting 0; by decisions, as published, the accuracy of a decision in time.
With g the best such share, the policy that maximises the mean of (earned - g * counted) is optimal, and that mean is 0.
Each round improves the policy at the present g and values (one sweep), and evaluates it exactly (:mod:`.pairs`), or by
sweeps over earned and counted side by side, which also gives its g.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .arrivals import Stream
from .pairs import Pairs, runs_of
from .transitions import Chain
from .worker import Worker

Weight = Literal["queries", "decisions"]
#: percent of accuracy within which the worth of a policy is exact
EXACT = 5e-3
#: sweeps of one evaluation, and rounds, at most
SWEEPS, ROUNDS = 8, 100


@dataclass(frozen=True)
class Policy:
    """A policy and what it is worth.

    Attributes:
        choice: (queued, slack): the variant that takes all that wait; row 0 has no meaning.
        worth: percent, earned by counted.
        gap: percent by which its worth may be off, and a better policy be worth more.
    """

    worker: Worker
    stream: Stream
    choice: np.ndarray
    worth: float
    gap: float


def solve(worker: Worker, stream: Stream, weigh: Weight = "queries", chain: Chain | None = None) -> Policy:
    """The optimal policy within ``EXACT``, or the best of ``ROUNDS`` rounds, whose ``gap`` says how far it may be."""
    chain = chain or Chain(worker, stream)
    rewards = Rewards(chain, weigh)
    shape = (worker.queue + 1, len(worker.slacks), 2)
    values = np.zeros(shape)
    worth = max(variant.accuracy for variant in worker.variants)
    best: Policy | None = None
    for _ in range(ROUNDS):
        choice, change = _improve(chain, rewards, values, worth)
        # The best policy's mean is between the least and the largest change; two decisions count one query at least.
        gap = 2 * change
        if best is not None and gap <= EXACT:
            return Policy(worker, stream, best.choice, best.worth, gap)
        values, worth = _evaluate(chain, rewards, choice, values)
        best = Policy(worker, stream, choice, worth, gap)
    return best


class Rewards:
    """Rewards and counts of a decision: arrays (variant, queued, slack) and (queued)."""

    def __init__(self, chain: Chain, weigh: Weight) -> None:
        worker = chain.worker
        rows = np.arange(worker.queue + 1, dtype=float)
        accuracy = np.array([variant.accuracy for variant in worker.variants])
        by_queries = weigh == "queries"
        self.counted = rows if by_queries else np.ones_like(rows)
        self.earned = accuracy[:, None, None] * chain.in_time * self.counted[None, :, None]
        #: columns earned and counted, of a row that is dropped
        self.dropped = np.array([0.0, 1.0 if by_queries else 0.0])


def _improve(chain: Chain, rewards: Rewards, values: np.ndarray, worth: float) -> tuple[np.ndarray, float]:
    """The best choice at these values, and the most by which a sweep with it changes them, up or down."""
    price = np.array([[1.0], [-worth]])
    flat = values @ price
    ahead = chain.ahead(flat, rewards.dropped @ price)[:, :, 0]
    queue, slacks = chain.worker.queue, len(chain.slacks)
    choice = np.zeros((queue + 1, slacks), int)
    most = abs(rewards.counted[0] * -worth + flat[1, -1, 0] - flat[0, 0, 0])
    for queued in range(1, queue + 1):
        runs = chain.run_of[:, queued]
        some = np.nonzero(runs >= 0)[0]
        future = ahead[runs[some]] @ chain.phases[queued].T
        now = rewards.earned[some, queued] - worth * rewards.counted[queued] + future
        now = np.where(chain.allowed[some, queued], now, -np.inf)
        choice[queued] = some[now.argmax(axis=0)]
        most = max(most, np.abs(now.max(axis=0) - flat[queued, :, 0]).max())
    return choice, float(most)


def _evaluate(chain: Chain, rewards: Rewards, choice: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """Relative values of a policy, in columns earned and counted, and its worth."""
    queued = np.arange(1, chain.worker.queue + 1)[:, None]
    gain = np.zeros_like(values)
    gain[1:, :, 0] = rewards.earned[choice[1:], queued, np.arange(len(chain.slacks))]
    gain[:, :, 1] = rewards.counted[:, None]
    if Pairs.fit(chain, choice):
        values, (earned, counted) = Pairs(chain, choice).values(gain, rewards.dropped)
        return values, float(earned / counted)
    step = Sweep(chain, choice)
    worth = 0.0
    for _ in range(SWEEPS):
        after = step(values, gain, rewards.dropped)
        drift = after - values
        values = after - after[0, 0]
        low, high = drift.min(axis=(0, 1)), drift.max(axis=(0, 1))
        earned, counted = (low + high) / 2
        worth = earned / counted
        if (high[0] - low[0]) / counted < EXACT / 4 and (high[1] - low[1]) * worth / counted < EXACT / 4:
            break
    return values, float(worth)


class Sweep:
    """One decision of a fixed policy from every state."""

    def __init__(self, chain: Chain, choice: np.ndarray) -> None:
        self._chain = chain
        self._where = [np.unique(row, return_inverse=True) for row in runs_of(chain, choice)]

    def __call__(self, values: np.ndarray, gain: np.ndarray, dropped: np.ndarray) -> np.ndarray:
        """The values before the decision, from those after it."""
        ahead = self._chain.ahead(values, dropped)
        made = np.empty_like(values)
        made[0] = gain[0] + values[1, -1]
        slacks = np.arange(values.shape[1])
        for queued, (runs, which) in enumerate(self._where, 1):
            future = self._chain.phases[queued] @ ahead[runs]
            made[queued] = gain[queued] + future[which, slacks]
        return made
