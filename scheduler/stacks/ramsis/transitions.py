"""Transitions of a worker's Markov decision process, as linear operators. Pure.

The published sums over arrivals in the intervals A to D (Eq. 2) fall into three factors, since increments are
independent, and no transition matrix is ever made:

1. Interval A: the phase of the worker, given that ``queued`` queries arrived since the head did (:attr:`Chain.phases`).
2. Interval B: no query reaches the worker until an age is left. The phase moves up; one operator for each slack time
   (:attr:`Slabs.none`), shared by all actions, since only the time left until the next decision counts.
3. Intervals C and D: the head of the next batch arrives within a slack time, and others after it
   (:attr:`Slabs.first`).

So a sweep over all states and actions takes a few million multiplications, where |S|^2 |A| would be 10^8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.progress import report

from .arrivals import Stream
from .worker import Worker

#: Continuation probability of a worker after a decision, by which values are scaled; else its queue is emptied. A full
#: queue that no variant serves in time may stay full for ages, so that values would have no digits left for the others.
CONTINUATION = 1 - 1e-6

#: slabs that are made together, and numbers in an array of theirs: more are beyond the processor's cache
TOGETHER, CELLS = 16, 2**18


@dataclass(frozen=True)
class Slabs:
    """Stretches of time before the next decision, each followed by ``after`` seconds until that decision.

    Attributes:
        none: (slab, phase, phase after it): the worker gets no query in it.
        first: (slab, phase, queued - 1): the first query comes in it, and ``queued`` are there at the decision.
        full: (slab, phase): more than the longest queue are there; ``dropped``: expected number beyond it.
    """

    none: np.ndarray
    first: np.ndarray
    full: np.ndarray
    dropped: np.ndarray

    @classmethod
    def of(cls, stream: Stream, queue: int, lengths: np.ndarray, after: np.ndarray) -> Slabs:
        count, phases = len(lengths), stream.phases
        made = cls(np.empty((count, phases, phases)), np.empty((count, phases, queue)), *np.empty((2, count, phases)))
        # The longest slab of an array decides about its size.
        order = np.argsort(-lengths, kind="stable")
        first = 0
        while first < count:
            cells = stream.most(lengths[order[first]]) * (queue + 1)
            chosen = order[first : first + min(TOGETHER, max(1, CELLS // cells))]
            made._make(chosen, stream, lengths[chosen], after[chosen])
            first += len(chosen)
        return made

    def _make(self, places: np.ndarray, stream: Stream, lengths: np.ndarray, after: np.ndarray) -> None:
        report()
        _, phases, queue = self.first.shape
        most = stream.most(lengths.max())
        within = stream.probabilities(most + phases, lengths)
        phase = np.arange(phases)
        step = phase[None, :] - phase[:, None]
        self.none[places] = np.where(step >= 0, within[:, np.maximum(step, 0)], 0.0)
        # Totals dealt out until the slab ends, counted from the worker's last query: the first comes at ``phases``.
        total = phases + np.arange(most)
        arriving = within[:, total[None, :] - phase[:, None]]
        # P(x or more arrivals after the slab) at first + x: 1 for x below 1.
        first = most - 1
        rest = stream.probabilities(stream.most(after.max()), after)
        tail = np.pad(
            np.cumsum(rest[:, ::-1], axis=1)[:, ::-1].clip(max=1.0), ((0, 0), (first, 0)), constant_values=1.0
        )
        tail = np.pad(tail, ((0, 0), (0, 1 + -(tail.shape[1] + 1) % phases)))
        # The worker gets every query in ``phases``: the expected number of those from there on.
        more = np.cumsum(tail.reshape(len(tail), -1, phases)[:, ::-1], axis=1)[:, ::-1].reshape(tail.shape)
        queued = np.arange(queue + 1)
        at = np.minimum(first + (queued[None, :] + 1) * phases - total[:, None], tail.shape[1] - 1)
        # P(more than ``queued``) given the total at the end of the slab.
        above = np.where(queued > 0, tail[:, at], 1.0)
        self.first[places] = arriving @ -np.diff(above, axis=2)
        self.full[places] = (arriving @ above[:, :, -1:])[:, :, 0]
        self.dropped[places] = (arriving @ more[:, at[:, -1:]])[:, :, 0]


class Chain:
    """The states of a worker and how they follow one another; a batch takes all that wait.

    A value of all states is an array (queue + 1, slacks, columns): the first row is that of the empty queue, the same
    for all slacks. A *run* is what decides when the next decision comes: a variant with a number of rows.

    Attributes:
        phases: (queued, slack, phase): of the worker when the head has that slack left (interval A).
        run_of: (variant, queued): place of the run; -1: there is none.
        allowed: (variant, queued, slack): the run ends in time, or it is the shortest one where none does.
        in_time: the same, ending in time.
    """

    def __init__(self, worker: Worker, stream: Stream) -> None:
        self.worker, self.stream = worker, stream
        self.slacks = np.array(worker.slacks)
        ages, seconds = worker.slo_s - self.slacks[::-1], worker.seconds()
        self.in_time = seconds[:, :, None] <= self.slacks[None, None, :] + 1e-12
        self.allowed = self.in_time.copy()
        hopeless = ~self.in_time.any(axis=0)
        for queued, shortest in enumerate(seconds.argmin(axis=0)):
            self.allowed[shortest, queued, hopeless[queued]] = True
        self.allowed[:, 0, :] = False
        self.phases = self._phases()
        used = self.allowed.any(axis=2)
        self.run_of = np.full(used.shape, -1)
        self.run_of[used] = np.arange(used.sum())
        times = seconds[used]
        self._last = last = len(ages) - 1
        #: slack of a head that arrives in the slab that begins at each age
        self._slack_of = np.append(last - 1 - np.arange(last), 0)
        self._steps = Slabs.of(stream, worker.queue, np.diff(ages), ages[:-1])
        self._from = np.minimum(np.searchsorted(ages, times, side="right") - 1, last)
        self._starts = Slabs.of(stream, worker.queue, times - ages[self._from], ages[self._from])

    def _phases(self) -> np.ndarray:
        """Probabilities of the worker's phases (interval A)."""
        phases, queue = self.stream.phases, self.worker.queue
        age = self.worker.slo_s - self.slacks
        made = np.zeros((queue + 1, len(age), phases))
        made[:, :, 0] = 1.0
        if phases == 1:
            return made
        old = age > 1e-12
        logs = self.stream.logs(queue * phases - 1, age[old]).reshape(-1, queue, phases)
        weights = np.exp(logs - logs.max(axis=2, keepdims=True))
        made[1:, old] = (weights / weights.sum(axis=2, keepdims=True)).transpose(1, 0, 2)
        return made

    def runs(self, choice: np.ndarray) -> np.ndarray:
        """Runs by queued rows, from 1, and slack, under a choice of variants (queued, slack)."""
        return self.run_of[choice[1:], np.arange(1, len(choice))[:, None]]

    def ahead(self, values: np.ndarray, dropped: np.ndarray) -> np.ndarray:
        """The expected ``values`` at the next decision: (run, phase, column).

        Args:
            values: of all states (queue + 1, slacks, column).
            dropped: by column, of a dropped row.
        """
        by_slack = values[1:].transpose(1, 0, 2)
        full = values[-1, 0]
        first = _gains(self._steps, by_slack[self._slack_of[: self._last]], full, dropped)
        at_age = np.empty((self._last + 1, *first.shape[1:]))
        at_age[0] = values[0, 0]
        none = self._steps.none
        for age in range(self._last):
            at_age[age + 1] = none[age] @ at_age[age] + first[age]
        return self._starts.none @ at_age[self._from] + _gains(
            self._starts, by_slack[self._slack_of[self._from]], full, dropped
        )

    def back(self, weights: np.ndarray) -> tuple[np.ndarray, float]:
        """Next states and rows dropped from weights (run, phase): transposed ``ahead``."""
        states = np.zeros((self.worker.queue + 1, len(self.slacks)))
        at_age = np.zeros((self._last + 1, self.stream.phases))
        np.add.at(at_age, self._from, (weights[:, None, :] @ self._starts.none)[:, 0])
        dropped = _losses(self._starts, weights, self._slack_of[self._from], states)
        none = self._steps.none
        for age in range(self._last, 0, -1):
            at_age[age - 1] += at_age[age] @ none[age - 1]
        dropped += _losses(self._steps, at_age[1:], self._slack_of[: self._last], states)
        states[0, 0] += at_age[0].sum()
        return states, dropped


def _gains(slabs: Slabs, by_slack: np.ndarray, full: np.ndarray, dropped: np.ndarray) -> np.ndarray:
    return slabs.first @ by_slack + slabs.full[:, :, None] * full + slabs.dropped[:, :, None] * dropped


def _losses(slabs: Slabs, weights: np.ndarray, slack_of: np.ndarray, states: np.ndarray) -> float:
    reached = (weights[:, None, :] @ slabs.first)[:, 0]
    np.add.at(states.T, (slack_of[:, None], 1 + np.arange(reached.shape[1])[None, :]), reached)
    states[-1, 0] += float((weights * slabs.full).sum())
    return float((weights * slabs.dropped).sum())
