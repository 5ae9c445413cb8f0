"""Decisions that leave queries behind, as linear operators. Pure.

They belong to variable batching (Section 4.3.2). The paper leaves their transitions to the reader. Three factors again
make them:

1. The first query left behind is the (``rows`` + 1)-th of the queue. When it came is known from what arrived since the
   head did (interval A), which does not depend on the variant (:attr:`LeavingRun.heads`).
2. Given that, the queries left behind are a queue as any other, whose length and slack decide about the worker's phase,
   and so about arrivals during the run (:attr:`LeavingRun.during`).
3. The run takes its time from the slack (:attr:`LeavingRun.spread`).

The first query left behind lies between two slack times, anywhere with the same chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .arrivals import Counts, Stream
from .worker import Worker

#: chance below which numbers of arrivals during a run are left out
NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class LeavingRun:
    """A variant with fewer rows than wait, for one class of arrivals.

    A *slab* is the time from one slack time to the next; the last slack time begins none.

    Attributes:
        first: shortest queue that it runs in; the others follow. ``slack``: place of the least slack time.
        heads: (queued, slack, slab): where the first query left behind is when the batch starts.
        during: (queued, slab, arrivals): in the run; ``full``: more than have a place; ``dropped``: expected number of
            these.
        spread: (slab, slack): of a query when the run ends.
    """

    variant: int
    rows: int
    first: int
    slack: int
    heads: np.ndarray
    during: np.ndarray
    full: np.ndarray
    dropped: np.ndarray
    spread: np.ndarray

    @property
    def queues(self) -> slice:
        """The queue lengths that it runs in."""
        return slice(self.first, self.first + len(self.heads))

    def ahead(self, values: np.ndarray, dropped: np.ndarray) -> np.ndarray:
        """Return the expected ``values`` at the next decision.

        Args:
            values: of all states (queue + 1, slacks, column).
            dropped: by column, of a dropped row.

        Returns:
            (queued, slack, column).
        """
        queue, slacks, columns = len(values) - 1, values.shape[1], values.shape[2]
        moved = values[1:].transpose(0, 2, 1).reshape(-1, slacks) @ self.spread.T
        moved = moved.reshape(queue, columns, -1)
        after = self.full[:, None, :] * values[-1, 0][:, None] + self.dropped[:, None, :] * dropped[:, None]
        for arrivals, count, place in self._places(queue):
            after[:count] += self.during[:count, None, :, arrivals] * moved[place : place + count]
        return self.heads @ after.transpose(0, 2, 1)

    def back(self, weights: np.ndarray, states: np.ndarray) -> float:
        """Add to the next ``states`` from ``weights``: the transpose of ``ahead``.

        Args:
            weights: (queued, slack) of the states in which it runs.
            states: of the next decision.

        Returns:
            The rows expected to be dropped.
        """
        queue = len(states) - 1
        after = (weights[:, None, :] @ self.heads)[:, 0]
        moved = np.zeros((queue, after.shape[1]))
        for arrivals, count, place in self._places(queue):
            moved[place : place + count] += after[:count] * self.during[:count, :, arrivals]
        states[1:] += moved @ self.spread
        states[-1, 0] += float((after * self.full).sum())
        return float((after * self.dropped).sum())

    def _places(self, queue: int) -> Iterator[tuple[int, int, int]]:
        """Yield the queues in which each number of arrivals has a place.

        Yields:
            The number of arrivals; in how many of the queues, from the shortest, these have a place; and the index of
            the shortest queue that results (index 0 has one query).
        """
        rest = self.first - self.rows
        for arrivals in range(self.during.shape[2]):
            count = min(len(self.heads), queue - rest - arrivals + 1)
            if count <= 0:
                return
            yield arrivals, count, rest + arrivals - 1


def leaving_runs(worker: Worker, stream: Stream, phases: np.ndarray, in_time: np.ndarray) -> tuple[LeavingRun, ...]:
    """All runs of fewer rows than wait that may be in time.

    Args:
        phases, in_time: as in :class:`.transitions.Chain`.
    """
    slacks, seconds = np.array(worker.slacks), worker.seconds()
    made = []
    for rows in range(1, worker.queue):
        able = np.nonzero(in_time[:, rows, -1])[0]
        if not len(able):
            continue
        least = int(in_time[:, rows].any(axis=0).argmax())
        heads = _heads(worker, stream, phases, rows, least)
        for variant in able:
            slack = int(in_time[variant, rows].argmax())
            spread = _spread(slacks, seconds[variant, rows])
            for group, counts in enumerate(stream.counts):
                queues = [n for n in range(rows + 1, worker.queue + 1) if stream.group(n) == group]
                if not queues:
                    continue
                first, last = queues[0], queues[-1]
                some = heads[first - rows - 1 : last - rows, slack - least :]
                counted = _during(counts, stream.phases, seconds[variant, rows], phases[first - rows : last - rows + 1])
                split = _overflow(counted, np.arange(worker.queue - first + rows, worker.queue - last + rows - 1, -1))
                made.append(LeavingRun(int(variant), rows, first, slack, some, *split, spread))
    return tuple(made)


def _heads(worker: Worker, stream: Stream, phases: np.ndarray, rows: int, least: int) -> np.ndarray:
    """Return where the first query left behind is when ``rows`` go.

    It is the arrival dealt out as number ``before`` since the head came. The chance that it is there by an age is
    summed over the numbers of arrivals before which it comes.

    Returns:
        Probabilities (queued - rows - 1, slack from ``least``, slab).
    """
    every, queue, slacks = stream.phases, worker.queue, np.array(worker.slacks)
    counts, before, last = stream.counts[0], rows * stream.phases, len(slacks) - 1
    total = np.arange(before - 1, queue * every - 1)
    made = np.zeros((queue - rows, last + 1 - least, last))
    made[:, -1, -1] = 1.0
    of_ages = counts.logs(queue * every, worker.slo_s - slacks[:-1])
    for slack in range(least, last):
        bounds = slacks[slack + 1 : last] - slacks[slack]
        reached = np.ones((queue - rows, len(bounds) + 2))
        reached[:, 0] = 0.0
        if len(bounds):
            age = worker.slo_s - slacks[slack]
            logs = counts.logs(before - 1, bounds)[:, -1:] - of_ages[slack, total]
            logs += of_ages[slack + 1 : last, : len(total)]
            chances = np.exp(logs) * counts.next_within(before - 1, total, bounds[:, None], age)
            there = np.cumsum(chances, axis=1).reshape(len(bounds), queue - rows, every).clip(max=1.0)
            reached[:, 1:-1] = np.einsum("brp,rp->rb", there, phases[rows + 1 :, slack])
        # Rounding must not make a chance negative.
        reached = np.maximum.accumulate(reached.clip(max=1.0), axis=1)
        made[:, slack - least, slack:] = np.diff(reached, axis=1)
    return made


def _during(counts: Counts, every: int, seconds: float, phases: np.ndarray) -> np.ndarray:
    """(queued, slab, arrivals): that this many queries reach the worker in a run."""
    most = counts.most(seconds)
    width = (most + every) // every + 1
    below = np.zeros(width * every + every)
    below[1 : most + 2] = np.cumsum(counts.probabilities(most, np.array([seconds]))[0]).clip(max=1.0)
    below[most + 2 :] = 1.0
    # ``below[x]``: fewer than x arrive. From a phase on, the worker gets one at each multiple of ``every``.
    ends = np.maximum(np.arange(1, width + 1)[None, :] * every - np.arange(every)[:, None], 0)
    by_phase = np.diff(below[ends], axis=1, prepend=0.0)
    by_phase[:, -1] += (1.0 - by_phase.sum(axis=1)).clip(min=0.0)
    return phases[:, :-1] @ by_phase


def _overflow(counted: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divide arrivals into those that have a place and those that have none.

    Args:
        counted: (queued, slab, arrivals): probabilities.
        places: by queue.

    Returns:
        Arrivals that have a place, the chance of more, and the expected number of these.
    """
    arrivals = np.arange(counted.shape[2])
    beyond = (arrivals[None, :] - places[:, None]).clip(min=0)
    full = (counted * (beyond > 0)[:, None, :]).sum(axis=2)
    dropped = (counted * beyond[:, None, :]).sum(axis=2)
    kept = counted * (beyond == 0)[:, None, :]
    used = np.nonzero((kept > NEGLIGIBLE).any(axis=(0, 1)))[0]
    kept = kept[:, :, : used[-1] + 1 if len(used) else 1]
    # Numbers below NEGLIGIBLE count as full queues: expected violations are rather too high than too low.
    return kept, full + (1.0 - full - kept.sum(axis=2)).clip(min=0.0), dropped


def _spread(slacks: np.ndarray, seconds: float) -> np.ndarray:
    """Return where a query of a slab is after this many seconds.

    Below 0 counts as 0.

    Returns:
        Probabilities (slab, slack).
    """
    below = (slacks[None, :] + seconds - slacks[:-1, None]) / np.diff(slacks)[:, None]
    below = below.clip(0.0, 1.0)
    below[:, 0] = 0.0
    return np.diff(below, axis=1, append=1.0)
