"""The optimal policy of a worker, by policy iteration on its average reward. Pure.

A policy is worth the share of what its decisions earn in what they count: by queries (the default) the accuracy of all
queries, late and dropped ones counting 0; by decisions, as published, the accuracy of a decision in time.
With g the best such share, the policy that maximises the mean of (earned - g * counted) is optimal, and that mean is 0.
Each round improves the policy at the present g and values (one sweep), and solves the equations of its values and g
(:mod:`.equations`). The chain is the worker's, except for a small chance that its queue is emptied (:mod:`.sweep`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from scheduler.progress import report

from .arrivals import Stream
from .equations import solved
from .leaving import LeavingRun
from .sweep import CONTINUATION, Sweep
from .transitions import Chain
from .worker import Worker

Weight = Literal["queries", "decisions"]
#: percent of accuracy within which the worth of a policy is exact
EXACT = 5e-3
#: values that differ by less are equal
TIE = 1e-9
#: rounds at most
ROUNDS = 100


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

    The latter is that of ``ROUNDS`` rounds, whose ``gap`` says how far it may be.

    Args:
        chain: of this worker and stream; None: with maximal batching.
    """
    chain = chain or Chain(worker, stream)
    rewards = Rewards(chain, weigh)
    start = max(variant.accuracy for variant in worker.variants)
    best, values = _iterate(chain, rewards, (), np.zeros((worker.queue + 1, len(worker.slacks))), start)
    if chain.leaving:
        # From the best policy that leaves none behind: whatever comes of it is worth no less.
        other, _ = _iterate(chain, rewards, chain.leaving, values, best.worth)
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
) -> tuple[Policy, np.ndarray]:
    """Iterate to the best policy that takes all that wait, or as in given runs.

    Args:
        leaving: runs that take fewer rows than wait.
        values: to start from: those of (earned - worth * counted) by state.
        worth: to start from, percent.

    Returns:
        The policy, and its values.
    """
    for number in range(ROUNDS + 1):
        choice, rows, change = _improve(chain, rewards, leaving, values, worth)
        # The best policy's mean is between the least and the largest change; two decisions count one query at least.
        gap = 2 * change
        if number == ROUNDS or (number and gap <= EXACT):
            break
        values, worth = _evaluated(chain, rewards, choice, rows, values, worth)
    return Policy(chain.worker, chain.stream, choice, rows, worth, gap), values


class Rewards:
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
        return np.stack((self.earned[choice, rows, np.arange(choice.shape[1])], self.counted[rows]), axis=2)


def price(worth: float) -> np.ndarray:
    return np.array([[1.0], [-worth]])


def _improve(
    chain: Chain, rewards: Rewards, leaving: tuple[LeavingRun, ...], values: np.ndarray, worth: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the best choice and rows at these values, and the largest change.

    The change is the most by which a sweep with them changes the values, up or down.
    """
    report()
    flat, dropped = CONTINUATION * values[:, :, None], rewards.dropped @ price(worth)
    ahead = chain.ahead(flat, dropped)[:, :, 0]
    queue, slacks = chain.worker.queue, len(chain.slacks)
    choice, rows = np.zeros((queue + 1, slacks), int), chain.worker.all_rows()
    best = np.empty((queue + 1, slacks))
    best[0] = rewards.counted[0] * -worth + flat[1, -1, 0]
    for queued in range(1, queue + 1):
        runs = chain.run_of[:, queued]
        able = np.nonzero(runs >= 0)[0]
        future = ahead[runs[able]] @ chain.phases[queued].T
        now = rewards.earned[able, queued] - worth * rewards.counted[queued] + future
        now = np.where(chain.allowed[able, queued], now, -np.inf)
        choice[queued] = able[now.argmax(axis=0)]
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


def _evaluated(
    chain: Chain, rewards: Rewards, choice: np.ndarray, rows: np.ndarray, values: np.ndarray, worth: float
) -> tuple[np.ndarray, float]:
    gain, dropped = rewards.gain(choice, rows), rewards.dropped
    step, shape = Sweep(chain, choice, rows), values.shape
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
