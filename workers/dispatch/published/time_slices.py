"""Time slices: which queue of a shared device runs a batch next. Pure.

Several queues (applications) share the device.

A slice is one batch. Among the queues that want to run, the one with the least slack goes first: slack is the time
until its batch must start to end by its first query's deadline. Alone, that rule lets an overloaded queue keep the
device, as its queries are always the most urgent. So one rule stands above it: **a queue that had a slice while another
was waiting does not go again before that other one, once that other one wants to run.**

The bound. Let l(X) be the longest slice of queue X, B(A) the sum of l(X) over the other queues, and D = l(A) + B(A) the
revisit period. From the moment that A wants to run, every other queue holds the device for at most one slice, the one
under way included: so A starts within B(A), and D is the longest time between two slices of a queue that wants to run.
With policies that want to run :func:`blocking_s` before their last moment, a queue's first query starts l(A) before its
deadline at the latest, if it came with a budget of at least D + l(A). More follows:

**No query of A is late if SLO >= D + l(A) and at most ``max_batch`` rows of A arrive in any D**, whatever the load of
the other queues. For let a be the arrival that ends A's idleness: the first slice starts by a + SLO - l(A), the
following ones, while rows are left behind, at most D apart, each full. A row left to slice i came at a + (i - 1) D or
later, and its slice ends by a + SLO + (i - 1) D. A plan admits batches on a shared device by the same rule,
l(b) <= SLO - D.

A query larger than ``max_batch`` runs alone and may take longer than a slice; while it does, the bound does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .policy import Candidate, Decision

#: seconds by which an event loop's timers may be late: they are rounded up to a millisecond and wait for the callback
#: under way. A query that waits until its last moment must not be late by that
TIMER_SLACK_S = 0.002
#: seconds by which sums of measured times are rounded; a start at the very last moment must not be late by that
_ROUNDING_S = 1e-6


def blocking_s(queues: Mapping[str, Sequence[Candidate]], slack_s: float = TIMER_SLACK_S) -> dict[str, float]:
    """Return how early each queue must want to run.

    These are seconds before its last moment (``QueueView.blocking_s``).

    One slice of each other queue, plus the time by which the queue's own batch may grow while it waits for them: the
    rows that arrive meanwhile then still fit in front of the first query's deadline, instead of staying behind for a
    whole revisit period. Neither for a queue that has the device to itself.

    Args:
        queues: what each of them may run, at least one candidate.
        slack_s: how late the caller's timers may wake it, on any device; 0 under a virtual clock.
    """
    longest_s = {name: max(c.latency.ceiling(c.max_batch) for c in candidates) for name, candidates in queues.items()}
    if len(queues) == 1:
        return dict.fromkeys(queues, slack_s)
    revisit_s = sum(longest_s.values())
    blocking = {}
    for name, candidates in queues.items():
        own = longest_s[name]
        growth = max(0.0, own - min(c.latency.least for c in candidates))
        blocking[name] = slack_s + (revisit_s - own + growth + _ROUNDING_S)
    return blocking


class Contender(NamedTuple):
    """A queue that waits for the device; ``since``: arrival of a query in it."""

    queue: str
    since: float
    decision: Decision

    def latest_start(self, now: float) -> float:
        """To meet the earliest deadline that it still can; inf: it can meet none."""
        run = self.decision.run
        seconds = self.decision.candidate.latency.seconds(sum([query.rows for query in run]))
        return min([query.deadline for query in run if query.deadline >= now + seconds], default=math.inf) - seconds


class Arbiter:
    def __init__(self) -> None:
        self._ended: dict[str, float] = {}
        self._since: dict[str, float] = {}

    def choose(self, contenders: Sequence[Contender], now: float) -> str | None:
        """The queue that runs now, under the rule at the top; None: all rather wait.

        Args:
            contenders: every queue in which a query waits, in any order.
        """
        # A query with a tighter deadline may come to the front, but the queue waits since its earlier one.
        self._since = {
            contender.queue: min(contender.since, self._since.get(contender.queue, now)) for contender in contenders
        }
        ready = [contender for contender in contenders if contender.decision.run]
        if not ready:
            return None
        ended = {contender.queue: self._ended.get(contender.queue, -math.inf) for contender in ready}
        # Queries that a queue left behind in its own last slice wait anew from then on.
        longest = min(max(self._since[name], at) for name, at in ended.items())
        # Never empty: the wait of the queue that waits longest began when its own last slice ended, or later.
        allowed = [contender for contender in ready if ended[contender.queue] <= longest]
        return min(allowed, key=lambda contender: (contender.latest_start(now), contender.queue)).queue

    def ended(self, queue: str, now: float) -> None:
        self._ended[queue] = now
        self._since.pop(queue, None)

    def forget(self, queue: str) -> None:
        self._ended.pop(queue, None)
        self._since.pop(queue, None)
