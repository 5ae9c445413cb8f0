"""Whose turn it is on a device that several lanes (applications) share. Pure; ``now`` is handed in.

Among the lanes that want to run, the one with the least slack goes first: slack is the time until its batch must start
to end by its first query's deadline. Alone, that rule lets an overloaded lane keep the device, as its queries are
always the most urgent. So one rule stands above it: **a lane that had a turn while another was waiting does not go
again before that other one, once that other one wants to run.**

The bound. Let l(X) be the longest turn of lane X, B(A) the sum of l(X) over the other lanes (plus what else may hold
the device) and D = l(A) + B(A), one full round. From the moment that A wants to run, every other lane holds the device
for at most one turn, the one under way included: so A starts within B(A), and D is the longest gap between two turns
of a lane that has work. Therefore, with policies that want to run :func:`blocking_s` before their last moment:

- the first query of a lane starts in time, if it arrives with a budget of at least B(A) + l(A);
- no query is late if SLO >= D + l(A) and no more rows arrive within a round than a turn takes: it arrives, at worst,
  as a turn of its own lane begins, waits at most D for the next one, and is done l(A) later. That is the same rule by
  which a plan admits batches on a shared device: l(b) <= SLO - D.

A query larger than ``max_batch`` runs alone and may take longer than a turn; while it does, the bound does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .base import Decision, Waiting
from .latency import LatencyModel

_ROUNDING_S = 1e-6
"""Sums of measured times are rounded; a start at the very last moment must not be late by that."""


@dataclass(frozen=True, slots=True)
class Lane:
    """How long a lane's turns are: ``turn_s`` the longest (its slowest candidate's full batch), ``single_s`` the
    shortest (one row)."""

    name: str
    turn_s: float
    single_s: float

    @classmethod
    def of(cls, name: str, candidates: Iterable) -> Lane:
        """From the lane's :class:`~workers.batching.base.Candidate` objects, at least one."""
        candidates = list(candidates)
        return cls(
            name,
            max(candidate.latency.seconds(candidate.max_batch) for candidate in candidates),
            min(candidate.latency.seconds(1) for candidate in candidates),
        )


def turn_gap_s(lanes: Sequence[Lane], other_s: float = 0.0) -> float:
    """D: the longest gap between the starts of two turns of a lane that has work. ``other_s``: what else may hold the
    device between two turns (a profiling measurement, say)."""
    return sum(lane.turn_s for lane in lanes) + other_s


def blocking_s(lanes: Sequence[Lane], other_s: float = 0.0) -> dict[str, float]:
    """By lane name, how much earlier than on a device of its own a lane must want to run (``LaneView.blocking_s``).

    One turn of each other lane, plus the time by which the lane's own batch may grow while it is kept waiting: the
    rows that arrive meanwhile then still fit in front of the first query's deadline, instead of staying behind for a
    whole round. 0 for a lane that has the device to itself.
    """
    gap = turn_gap_s(lanes, other_s)
    blocking = {}
    for lane in lanes:
        others = gap - lane.turn_s
        alone = len(lanes) == 1 and not other_s
        blocking[lane.name] = 0.0 if alone else others + max(0.0, lane.turn_s - lane.single_s) + _ROUNDING_S
    return blocking


@dataclass(frozen=True, slots=True)
class Wish:
    """A lane with something waiting, and what its policy decided for this moment.

    ``waiting_since``: arrival of a query that waits (the first in the queue will do). ``deadline``: the earliest
    deadline that the decided batch can still meet; inf if there is none. ``batch_s``: seconds that the batch takes.
    """

    lane: str
    decision: Decision
    waiting_since: float
    deadline: float = math.inf
    batch_s: float = 0.0

    @classmethod
    def of(
        cls, lane: str, decision: Decision, queue: Sequence[Waiting], latencies: Mapping[int, LatencyModel], now: float
    ) -> Wish:
        """From the queue (before the decision's drops are taken out of it) and the latencies by variant.

        Raises:
            ValueError: the decision runs a query that does not wait.
        """
        since = queue[0].arrived if queue else now
        if not decision.run:
            return cls(lane, decision, since)
        wanted, batch = set(decision.run), []
        for query in queue:
            if query.id in wanted:
                batch.append(query)
                if len(batch) == len(wanted):
                    break
        else:
            raise ValueError(f"lane {lane}: the decision runs queries that do not wait: {decision.run}")
        batch_s = latencies[decision.variant].seconds(sum(query.rows for query in batch))
        deadline = min((query.deadline for query in batch if query.deadline >= now + batch_s), default=math.inf)
        return cls(lane, decision, since, deadline, batch_s)


@dataclass(frozen=True, slots=True)
class Turn:
    """``lane``: whose batch runs now, or None. ``ask_at``: when to ask again if nothing else happens before; the
    earliest time that a waiting lane named (inf: none did)."""

    lane: str | None
    ask_at: float


class Arbiter:
    """Chooses turns on one device; remembers when each lane last ended one."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}
        self._since: dict[str, float] = {}

    def choose(self, wishes: Sequence[Wish], now: float) -> Turn:
        """The turn to take on the free device. ``wishes``: every lane with something waiting, in any order; at most
        one each. Least slack first, ties by name, under the rule above."""
        ask_at = math.inf
        since: dict[str, float] = {}
        ready: list[Wish] = []
        for wish in wishes:
            # A query with a tighter deadline may come to the front, but the lane waits since its earlier one.
            since[wish.lane] = min(wish.waiting_since, self._since.get(wish.lane, now))
            if wish.decision.run:
                ready.append(wish)
            else:
                ask_at = min(ask_at, wish.decision.wait_until)
        self._since = since
        if not ready:
            return Turn(None, ask_at)
        # A lane counts as waiting from its own last turn on at the earliest: what it left behind then is a new wait.
        waiting = {wish.lane: max(since[wish.lane], self._ended.get(wish.lane, -math.inf)) for wish in ready}
        longest = min(waiting.values())
        # Never empty: the wait of the lane that waits longest began when its own last turn ended, or later.
        allowed = [wish for wish in ready if self._ended.get(wish.lane, -math.inf) <= longest]
        best = min(allowed, key=lambda wish: (wish.deadline - wish.batch_s, wish.lane))
        return Turn(best.lane, ask_at)

    def ended(self, lane: str, now: float) -> None:
        """Told of each turn that ended, before the next :meth:`choose`."""
        self._ended[lane] = now
        self._since.pop(lane, None)

    def forget(self, lane: str) -> None:
        """The lane is gone from the device."""
        self._ended.pop(lane, None)
        self._since.pop(lane, None)
