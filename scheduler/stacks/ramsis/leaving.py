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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from scheduler.progress import report

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
        during: (arrivals, queued, slab): in the run; ``full``: more than have a place; ``dropped``: expected number of
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
    def states(self) -> tuple[slice, slice]:
        queued, slacks, _ = self.heads.shape
        return slice(self.first, self.first + queued), slice(self.slack, self.slack + slacks)

    def ahead(self, values: np.ndarray, dropped: np.ndarray) -> np.ndarray:
        """As :meth:`.transitions.Chain.ahead`: (queued, slack, column)."""
        queue, slacks, columns = len(values) - 1, values.shape[1], values.shape[2]
        moved = values[1:].transpose(0, 2, 1).reshape(-1, slacks) @ self.spread.T
        moved = moved.reshape(queue, columns, -1)
        after = self.full[:, None, :] * values[-1, 0][:, None] + self.dropped[:, None, :] * dropped[:, None]
        for arrivals, count, place in self._places(queue):
            after[:count] += self.during[arrivals, :count, None] * moved[place : place + count]
        return self.heads @ after.transpose(0, 2, 1)

    def _places(self, queue: int) -> Iterator[tuple[int, int, int]]:
        rest = self.first - self.rows
        for arrivals in range(len(self.during)):
            count = min(len(self.heads), queue - rest - arrivals + 1)
            if count <= 0:
                return
            yield arrivals, count, rest + arrivals - 1


class LeavingStates:
    def __init__(self, run: LeavingRun, states: np.ndarray) -> None:
        queued, slack = np.nonzero(states)
        self.queued, self.slack = run.first + queued, run.slack + slack
        part = slice(queued[0], queued[-1] + 1)
        self._heads, self._of = run.heads[queued, slack], queued - queued[0]
        self._starts = np.nonzero(np.diff(queued, prepend=-1))[0]
        self._during, self._full, self._dropped = run.during[:, part], run.full[part], run.dropped[part]
        self._spread, self._rest = run.spread, int(self.queued[0]) - run.rows

    def ahead(self, values: np.ndarray, dropped: np.ndarray) -> np.ndarray:
        arrivals, queues, slabs = self._during.shape
        moved = values[self._rest :].transpose(2, 0, 1) @ self._spread.T
        places = np.zeros((len(moved), arrivals + queues - 1, slabs))
        places[:, : moved.shape[1]] = moved[:, : places.shape[1]]
        # (column, arrivals, queued, slab): the place of those that are there then.
        column, place, slab = places.strides
        there = as_strided(places, (len(moved), *self._during.shape), (column, place, place, slab), writeable=False)
        after = np.einsum("aqs,caqs->cqs", self._during, there)
        after += values[-1, 0][:, None, None] * self._full + dropped[:, None, None] * self._dropped
        return np.einsum("ns,cns->nc", self._heads, after[:, self._of])

    def back(self, weights: np.ndarray, states: np.ndarray) -> float:
        """Add to the next ``states`` from ``weights``, transposed; returns rows dropped."""
        arrivals, queues, slabs = self._during.shape
        after = np.zeros((queues, slabs))
        after[self._of[self._starts]] = np.add.reduceat(weights[:, None] * self._heads, self._starts)
        moved = np.zeros((arrivals + queues - 1, slabs))
        for count, during in enumerate(self._during):
            moved[count : count + queues] += after * during
        places = moved[: len(states) - self._rest]
        states[self._rest : self._rest + len(places)] += places @ self._spread
        states[-1, 0] += float((after * self._full).sum())
        return float((after * self._dropped).sum())


def leaving_runs(worker: Worker, stream: Stream, phases: np.ndarray, in_time: np.ndarray) -> tuple[LeavingRun, ...]:
    """All that may be in time; arguments as in :class:`.transitions.Chain`."""
    slacks, seconds = np.array(worker.slacks), worker.seconds()
    useful = [rows for rows in range(1, worker.queue) if in_time[:, rows, -1].any()]
    least = {rows: int(in_time[:, rows].any(axis=0).argmax()) for rows in useful}
    heads = _heads(worker, stream, least)
    made = []
    for rows in useful:
        report()
        for variant in np.nonzero(in_time[:, rows, -1])[0]:
            slack = int(in_time[variant, rows].argmax())
            spread = _spread(slacks, seconds[variant, rows])
            for group, counts in enumerate(stream.counts):
                queues = [n for n in range(rows + 1, worker.queue + 1) if stream.group(n) == group]
                if not queues:
                    continue
                first, last = queues[0], queues[-1]
                part = heads[rows][first - rows - 1 : last - rows, slack - least[rows] :]
                places = np.arange(worker.queue - first + rows, worker.queue - last + rows - 1, -1)
                left = phases[first - rows : last - rows + 1, :-1]
                counted = _during(counts, stream.phases, seconds[variant, rows], left, places)
                made.append(LeavingRun(int(variant), rows, first, slack, part, *counted, spread))
    return tuple(made)


def _heads(worker: Worker, stream: Stream, least: Mapping[int, int]) -> dict[int, np.ndarray]:
    """Return where the first query left behind is when some rows go.

    It is the arrival dealt out as number ``rows * phases`` since the head came. It is there by an age unless fewer came
    by then, and the others later: sums, over both, of products.

    Args:
        least: place of the least slack time, by rows.

    Returns:
        Probabilities (queued - rows - 1, slack from the least, slab), by rows.
    """
    every, queue, slacks = stream.phases, worker.queue, np.array(worker.slacks)
    counts, last, most = stream.counts[0], len(slacks) - 1, max(least, default=0)
    # Places are slacks at which it is there; at the last one, when the head came is all that is known.
    made = {rows: np.zeros((queue - rows, last + 1 - first, last + 1)) for rows, first in least.items()}
    for chances in made.values():
        chances[:, :, -1] = 1.0
    if not made:
        return made
    # All numbers are dealt out; a block of ``every`` is one query of the worker.
    ages = worker.slo_s - slacks[:-1]
    logs = counts.logs(queue * every - 1, ages).reshape(last, queue, every)
    until = np.logaddexp.accumulate(logs, axis=2)
    since = np.logaddexp.accumulate(logs[:, :, ::-1], axis=2)
    # (slack, block, j): that the arrivals since then end with the block, if ``j`` of its ``every`` came before.
    later = until[:, :, ::-1].copy()
    later[:, 1:, 1:] = np.logaddexp(later[:, 1:, 1:], since[:, :-1, :-1])
    # The same factor for each arrival, before and after, changes no product of both, and keeps each within range.
    level = (logs[last // 2, 0, 0] - logs[last // 2, -1, -1]) / (queue * every) * np.arange(every)
    later -= level
    scale = later.max(axis=2)
    later = np.exp(later - scale[:, :, None])
    before, blocks = np.nonzero(np.arange(most)[:, None] <= np.arange(queue))
    from_least = min(least.values())
    for place in range(from_least + 1, last):
        report()
        part = slice(from_least, place)
        sooner = counts.logs(most * every - 1, slacks[place] - slacks[part]).reshape(-1, most, every) + level
        size = sooner.max(axis=2)
        both = np.exp(sooner - size[:, :, None]) @ later[place].T
        factor = size[:, before] + scale[place, blocks - before] - until[part, blocks, -1]
        missing = np.zeros((len(size), most, queue))
        missing[:, before, blocks] = both[:, before, blocks - before] * np.exp(factor.clip(max=700.0))
        missing = np.cumsum(missing, axis=1)
        for rows, first in least.items():
            if first < place:
                there = 1.0 - missing[first - from_least :, rows - 1, rows:].T
                made[rows][:, : place - first, place] = there
    for rows, chances in made.items():
        # Rounding must not make a chance negative.
        made[rows] = np.diff(np.maximum.accumulate(chances.clip(0.0, 1.0), axis=2), axis=2)
    return made


def _during(
    counts: Counts, every: int, seconds: float, phases: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how many queries reach the worker in a run.

    Args:
        phases: (queued, slab, phase) of the worker.
        places: arrivals that have a place, by queue.

    Returns:
        (arrivals, queued, slab): that this many do, which have a place; the chance of more; and the expected number
        of these.
    """
    most = counts.most(seconds)
    width = max((most + every) // every + 1, int(places[0]) + 1)
    below = np.ones((width + 1) * every)
    below[0] = 0.0
    below[1 : most + 2] = np.cumsum(counts.probabilities(most, np.array([seconds]))[0]).clip(max=1.0)
    # ``below[x]``: fewer than x arrive. From a phase on, the worker gets one at each multiple of ``every``.
    numbers = np.arange(1, width + 1)
    reached = 1.0 - below[numbers * every - np.arange(every)[:, None]]
    exactly = -np.diff(reached, axis=1, prepend=1.0)[:, : places[0] + 1]
    used = np.nonzero((exactly > NEGLIGIBLE).any(axis=0))[0]
    exactly = exactly[:, : used[-1] + 1 if len(used) else 1]
    beyond = np.cumsum(reached[:, ::-1], axis=1)[:, ::-1]
    kept = np.ascontiguousarray((phases @ exactly).transpose(2, 0, 1))
    kept *= (np.arange(len(kept))[:, None] <= places)[:, :, None]
    dropped = (phases @ beyond[:, places].T[:, :, None])[:, :, 0]
    # Numbers below NEGLIGIBLE count as full queues: expected violations are rather too high than too low.
    return kept, (1.0 - kept.sum(axis=0)).clip(min=0.0), dropped


def _spread(slacks: np.ndarray, seconds: float) -> np.ndarray:
    """Probabilities (slab, slack) of a query's slack after this long."""
    below = (slacks[None, :] + seconds - slacks[:-1, None]) / np.diff(slacks)[:, None]
    below = below.clip(0.0, 1.0)
    below[:, 0] = 0.0
    return np.diff(below, axis=1, append=1.0)
