"""Whose turn it is on a device that several lanes (applications) share. Pure; ``now`` is handed in.

Among the lanes that want to run, the one with the least slack goes first: slack is the time until its batch must start
to end by its first query's deadline. Alone, that rule lets an overloaded lane keep the device, as its queries are
always the most urgent. So one rule stands above it: **a lane that had a turn while another was waiting does not go
again before that other one, once that other one wants to run.**

The bound. Let l(X) be the longest turn of lane X, B(A) the sum of l(X) over the other lanes, and D = l(A) + B(A), one
full round. From the moment that A wants to run, every other lane holds the device for at most one turn, the one under
way included: so A starts within B(A), and D is the longest gap between two turns of a lane that wants to run. With
policies that want to run :func:`blocking_s` before their last moment, a lane's first query starts l(A) before its
deadline at the latest, if it came with a budget of at least D + l(A). More follows:

**No query of A is late if SLO >= D + l(A) and at most ``max_batch`` rows of A arrive in any D**, whatever the other
lanes' loads. For let a be the arrival that ends A's idleness: the first turn starts by a + SLO - l(A), the following
ones, while rows are left behind, at most D apart, each full. A row left to turn i came at a + (i - 1) D or later, and
its turn ends by a + SLO + (i - 1) D. A plan admits batches on a shared device by the same rule, l(b) <= SLO - D.

A query larger than ``max_batch`` runs alone and may take longer than a turn; while it does, the bound does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..latency import LatencyModel
from .batching.base import Candidate, Decision, Waiting

TIMER_SLACK_S = 0.002
"""An event loop's timers are rounded up to a millisecond and wait for the callback under way. Without this slack a
query that waits for company until its last moment would be late by it."""
_ROUNDING_S = 1e-6
"""Sums of measured times are rounded; a start at the very last moment must not be late by that."""


class Lane(msgspec.Struct, frozen=True):
    """How long a lane's turns are: ``longest_s`` the longest (its slowest candidate's full batch), ``shortest_s`` the
    shortest."""

    name: str
    longest_s: float
    shortest_s: float

    @classmethod
    def of(cls, name: str, candidates: Iterable[Candidate]) -> Lane:
        """From what the lane may run, at least one candidate."""
        candidates = list(candidates)
        return cls(
            name,
            max(c.latency.ceiling(c.max_batch) for c in candidates),
            min(c.latency.least for c in candidates),
        )


def blocking_s(lanes: Sequence[Lane], slack_s: float = TIMER_SLACK_S) -> dict[str, float]:
    """By lane name, how much before its last moment a lane must want to run (``LaneView.blocking_s``).

    One turn of each other lane, plus the time by which the lane's own batch may grow while it is kept
    waiting: the rows that arrive meanwhile then still fit in front of the first query's deadline, instead of staying
    behind for a whole round. Neither for a lane that has the device to itself. ``slack_s``: how late the caller's
    timers may wake it, on any device; 0 under a virtual clock.
    """
    gap = sum([lane.longest_s for lane in lanes])
    blocking = {}
    for lane in lanes:
        blocking[lane.name] = slack_s
        if len(lanes) > 1:
            blocking[lane.name] += gap - lane.longest_s + max(0.0, lane.longest_s - lane.shortest_s) + _ROUNDING_S
    return blocking


class Wish(msgspec.Struct, frozen=True):
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


class Turn(msgspec.Struct, frozen=True):
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
