"""The optimal policy of a worker, by policy iteration on its average reward. Pure.

A policy is worth the share of what its decisions earn in what they count: by queries (the default) the accuracy of all
queries, late and dropped ones counting 0; by decisions, as published, the accuracy of a decision in time.
With g the best such share, the policy that maximises the mean of (earned - g * counted) is optimal, and that mean is 0.
Each round improves the policy at the present g and values (one sweep), and evaluates it exactly (:mod:`.pairs`), or by
sweeps over earned and counted side by side, which also gives its g.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from .arrivals import Stream
from .leaving import LeavingRun
from .long_run import stationary
from .pairs import Pairs, leaving_states, runs_of
from .transitions import Chain
from .worker import Worker

Weight = Literal["queries", "decisions"]
#: percent of accuracy within which the worth of a policy is exact
EXACT = 5e-3
#: values that differ by less are equal
TIE = 1e-9
#: sweeps of one evaluation, and rounds, at most
SWEEPS, ROUNDS = 8, 100


@dataclass(frozen=True)
class Policy:
    """A policy and what it is worth.

    Attributes:
        choice: (queued, slack): the variant that runs; row 0 has no meaning.
        rows: (queued, slack): how many of those that wait it takes, the first ones.
        worth: percent, earned by counted.
        gap: percent by which its worth may be off, and a better policy be worth more.
    """

    worker: Worker
    stream: Stream
    choice: np.ndarray
    rows: np.ndarray
    worth: float
    gap: float


def solve(worker: Worker, stream: Stream, weigh: Weight = "queries", chain: Chain | None = None) -> Policy:
    """Return the optimal policy within ``EXACT``, or one that is near it.

    The latter is the best of ``ROUNDS`` rounds, whose ``gap`` says how far it may be.

    Args:
        chain: of this worker and stream; None: with maximal batching.
    """
    chain = chain or Chain(worker, stream)
    rewards = Rewards(chain, weigh)
    values = np.zeros((worker.queue + 1, len(worker.slacks), 2))
    start = max(variant.accuracy for variant in worker.variants)
    best, values = _iterate(chain, rewards, (), values, start)
    if chain.leaving:
        # From the best policy that leaves none behind: whatever comes of it is worth no less.
        often, _ = stationary(chain, best.choice, best.rows)
        other, _ = _iterate(chain, rewards, chain.leaving, values, best.worth, often)
        if other.gap <= EXACT and other.worth > best.worth:
            best = other
        best = replace(best, gap=other.gap)
    return best


def _iterate(
    chain: Chain,
    rewards: Rewards,
    leaving: tuple[LeavingRun, ...],
    values: np.ndarray,
    worth: float,
    often: np.ndarray | None = None,
) -> tuple[Policy, np.ndarray]:
    """Iterate to the best policy that takes all that wait, or as in given runs.

    Args:
        leaving: runs that take fewer rows than wait.
        values: to start from.
        worth: to start from, percent.
        often: weights of the states by which worths are judged before all states agree; None: the extremes.

    Returns:
        The policy, and its values.
    """
    best: Policy | None = None
    for _ in range(ROUNDS):
        choice, rows, change = _improve(chain, rewards, leaving, values, worth)
        # The best policy's mean is between the least and the largest change; two decisions count one query at least.
        gap = 2 * change
        if best is not None and gap <= EXACT:
            return replace(best, gap=gap), values
        values, worth = _evaluate(chain, rewards, choice, rows, values, often)
        best = Policy(chain.worker, chain.stream, choice, rows, worth, gap)
    return best, values


class Rewards:
    """Rewards and counts of a decision: arrays (variant, rows, slack) and (rows)."""

    def __init__(self, chain: Chain, weigh: Weight) -> None:
        worker = chain.worker
        rows = np.arange(worker.queue + 1, dtype=float)
        accuracy = np.array([variant.accuracy for variant in worker.variants])
        by_queries = weigh == "queries"
        self.counted = rows if by_queries else np.ones_like(rows)
        self.earned = accuracy[:, None, None] * chain.in_time * self.counted[None, :, None]
        #: columns earned and counted, of a row that is dropped
        self.dropped = np.array([0.0, 1.0 if by_queries else 0.0])


def _improve(
    chain: Chain, rewards: Rewards, leaving: tuple[LeavingRun, ...], values: np.ndarray, worth: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the best choice and rows at these values, and the largest change.

    The change is the most by which a sweep with them changes the values, up or down.
    """
    price = np.array([[1.0], [-worth]])
    flat = values @ price
    ahead = chain.ahead(flat, rewards.dropped @ price)[:, :, 0]
    queue, slacks = chain.worker.queue, len(chain.slacks)
    choice, rows = np.zeros((queue + 1, slacks), int), chain.worker.all_rows()
    best = np.empty((queue + 1, slacks))
    best[0] = rewards.counted[0] * -worth + flat[1, -1, 0]
    for queued in range(1, queue + 1):
        runs = chain.run_of[:, queued]
        some = np.nonzero(runs >= 0)[0]
        future = ahead[runs[some]] @ chain.phases[queued].T
        now = rewards.earned[some, queued] - worth * rewards.counted[queued] + future
        now = np.where(chain.allowed[some, queued], now, -np.inf)
        choice[queued] = some[now.argmax(axis=0)]
        best[queued] = now.max(axis=0)
    for run in leaving:
        earned = rewards.earned[run.variant, run.rows, run.slack :] - worth * rewards.counted[run.rows]
        now = earned + run.ahead(flat, rewards.dropped @ price)[:, :, 0]
        here = best[run.queues, run.slack :]
        # Between equals, all that wait go at once.
        better = now > here + TIE
        here[better] = now[better]
        choice[run.queues, run.slack :][better] = run.variant
        rows[run.queues, run.slack :][better] = run.rows
    return choice, rows, float(np.abs(best - flat[:, :, 0]).max())


def _evaluate(
    chain: Chain,
    rewards: Rewards,
    choice: np.ndarray,
    rows: np.ndarray,
    values: np.ndarray,
    often: np.ndarray | None,
) -> tuple[np.ndarray, float]:
    """Relative values of a policy, in columns earned and counted, and its worth."""
    gain = np.zeros_like(values)
    gain[:, :, 0] = rewards.earned[choice, rows, np.arange(len(chain.slacks))]
    gain[:, :, 1] = rewards.counted[rows]
    if (rows == chain.worker.all_rows()).all() and Pairs.fit(chain, choice):
        values, (earned, counted) = Pairs(chain, choice).values(gain, rewards.dropped)
        return values, float(earned / counted)
    step = Sweep(chain, choice, rows)
    worth = 0.0
    for _ in range(SWEEPS):
        after = step(values, gain, rewards.dropped)
        drift = after - values
        values = after - after[0, 0]
        low, high = drift.min(axis=(0, 1)), drift.max(axis=(0, 1))
        earned, counted = (low + high) / 2 if often is None else np.einsum("ns,nsc->c", often, drift)
        worth = earned / counted
        if (high[0] - low[0]) / counted < EXACT / 4 and (high[1] - low[1]) * worth / counted < EXACT / 4:
            break
    return values, float(worth)


class Sweep:
    """One decision of a fixed policy from every state."""

    def __init__(self, chain: Chain, choice: np.ndarray, rows: np.ndarray) -> None:
        self._chain = chain
        self._leaving = list(leaving_states(chain, choice, rows))
        self._where = [np.unique(row, return_inverse=True) for row in runs_of(chain, choice, rows)]

    def __call__(self, values: np.ndarray, gain: np.ndarray, dropped: np.ndarray) -> np.ndarray:
        """The values before the decision, from those after it."""
        ahead = self._chain.ahead(values, dropped)
        made = np.empty_like(values)
        made[0] = gain[0] + values[1, -1]
        slacks = np.arange(values.shape[1])
        for queued, (runs, which) in enumerate(self._where, 1):
            future = self._chain.phases[queued] @ ahead[runs]
            made[queued] = gain[queued] + future[which, slacks]
        for run, states in self._leaving:
            after = gain[run.queues, run.slack :] + run.ahead(values, dropped)
            made[run.queues, run.slack :][states] = after[states]
        return made
