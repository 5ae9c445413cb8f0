"""The optimal policy of a worker, by policy iteration on its average reward. Pure.

A policy is worth the share of what its decisions earn in what they count: by queries (the default) the accuracy of all
queries, late and dropped ones counting 0; by decisions, as published, the accuracy of a decision in time.
With g the best such share, the policy that maximises the mean of (earned - g * counted) is optimal, and that mean is 0.
Each round improves the policy at the present g and values (one sweep), and evaluates it: one that takes all that wait
exactly (:mod:`.pairs`), or by sweeps over earned and counted side by side, which also gives its g; with variable
batching by equations over all states (:mod:`.equations`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from scheduler.progress import report

from .arrivals import Stream
from .equations import solved
from .leaving import LeavingRun
from .pairs import Pairs, leaving_states, runs_of
from .transitions import Chain
from .worker import Worker

Weight = Literal["queries", "decisions"]
#: values by state and worth of a policy's choice and rows
Evaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, float]]
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
    most = _SideBySide(chain, rewards)
    start = max(variant.accuracy for variant in worker.variants)
    best, values = _iterate(chain, rewards, (), most, np.zeros((worker.queue + 1, len(worker.slacks))), start)
    if chain.leaving:
        # From the best policy that leaves none behind: whatever comes of it is worth no less.
        other, _ = _iterate(chain, rewards, chain.leaving, _Together(chain, rewards, values), values, best.worth)
        if other.gap <= EXACT and other.worth > best.worth:
            best = other
        best = replace(best, gap=other.gap)
    return best


def _iterate(
    chain: Chain,
    rewards: Rewards,
    leaving: tuple[LeavingRun, ...],
    evaluate: Evaluate,
    values: np.ndarray,
    worth: float,
) -> tuple[Policy, np.ndarray]:
    """Iterate to the best policy that takes all that wait, or as in given runs.

    Args:
        leaving: runs that take fewer rows than wait.
        values: to start from: those of (earned - worth * counted) by state.
        worth: to start from, percent.

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
        values, worth = evaluate(choice, rows)
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

    def gain(self, choice: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return (queued, slack, column): earned and counted by a policy's decisions."""
        return np.stack((self.earned[choice, rows, np.arange(choice.shape[1])], self.counted[rows]), axis=2)


def price(worth: float) -> np.ndarray:
    """Return the factors of the columns earned and counted, at this worth of a query."""
    return np.array([[1.0], [-worth]])


def _improve(
    chain: Chain, rewards: Rewards, leaving: tuple[LeavingRun, ...], values: np.ndarray, worth: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the best choice and rows at these values, and the largest change.

    The change is the most by which a sweep with them changes the values, up or down.
    """
    report()
    flat, dropped = values[:, :, None], rewards.dropped @ price(worth)
    ahead = chain.ahead(flat, dropped)[:, :, 0]
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
        now = earned + run.ahead(flat, dropped)[:, :, 0]
        here = best[run.states]
        # Between equals, all that wait go at once.
        better = now > here + TIE
        here[better] = now[better]
        choice[run.states][better] = run.variant
        rows[run.states][better] = run.rows
    return choice, rows, float(np.abs(best - values).max())


class _SideBySide:
    """Evaluation of policies that take all that wait.

    Values are those of earned and of counted, side by side, and begin at the policy before.
    """

    def __init__(self, chain: Chain, rewards: Rewards) -> None:
        self._chain, self._rewards = chain, rewards
        self._values = np.zeros((chain.worker.queue + 1, len(chain.slacks), 2))

    def __call__(self, choice: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
        chain, dropped = self._chain, self._rewards.dropped
        gain = self._rewards.gain(choice, rows)
        if Pairs.fit(chain, choice):
            self._values, (earned, counted) = Pairs(chain, choice).values(gain, dropped)
            worth = earned / counted
        else:
            worth = self._sweeps(Sweep(chain, choice, rows), gain)
        return (self._values @ price(worth))[:, :, 0], float(worth)

    def _sweeps(self, step: Sweep, gain: np.ndarray) -> float:
        worth = 0.0
        for _ in range(SWEEPS):
            report()
            after = step(self._values, gain, self._rewards.dropped)
            drift = after - self._values
            self._values = after - after[0, 0]
            low, high = drift.min(axis=(0, 1)), drift.max(axis=(0, 1))
            earned, counted = (low + high) / 2
            worth = earned / counted
            if (high[0] - low[0]) / counted < EXACT / 4 and (high[1] - low[1]) * worth / counted < EXACT / 4:
                break
        return worth


class _Together:
    """Evaluation of any policy.

    Values and worth solve one system of equations, and begin at the policy before.
    """

    def __init__(self, chain: Chain, rewards: Rewards, values: np.ndarray) -> None:
        self._chain, self._rewards, self._values = chain, rewards, values - values[0, 0]

    def __call__(self, choice: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
        step, shape = Sweep(self._chain, choice, rows), self._values.shape
        # An empty queue waits for its first query, and then decides.
        gain = step(np.zeros((*shape, 2)), self._rewards.gain(choice, rows), self._rewards.dropped)
        earned, counted = gain[:, :, 0].ravel(), gain[:, :, 1].ravel()
        nothing, none = np.zeros((*shape, 1)), np.zeros(1)

        def product(found: np.ndarray) -> np.ndarray:
            # All values are 0 in the empty queue, whose place has the worth.
            worth, values = found[0], found.copy()
            values[0] = 0.0
            return values - step(values.reshape(*shape, 1), nothing, none).ravel() + worth * counted

        start = self._values.ravel().copy()
        start[0] = 0.0
        found = solved(product, earned, start, EXACT / 40)
        worth, found[0] = float(found[0]), 0.0
        self._values = found.reshape(shape)
        return self._values, worth


class Sweep:
    """One decision of a fixed policy from every state."""

    def __init__(self, chain: Chain, choice: np.ndarray, rows: np.ndarray) -> None:
        self._chain = chain
        self._leaving = leaving_states(chain, choice, rows)
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
        for some in self._leaving:
            made[some.queued, some.slack] = gain[some.queued, some.slack] + some.ahead(values, dropped)
        return made
