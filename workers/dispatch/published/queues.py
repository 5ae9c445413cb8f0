"""The queue of an application on a device, with the batch policy and the options that serve it. Pure."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from workers.batching.base import BatchPolicy, Candidate, Decision, LaneView
from workers.batching.latency import LatencyModel
from workers.batching.relief import behind, relief_rows

from ..binding import ServiceTerms, WaitingQuery
from ..options import INF, ServingOption

if TYPE_CHECKING:
    from .devices import QueuedDevice

#: parts of a queue that a policy is asked about until one of them runs; the others have later deadlines
MOST_PARTS = 8


#: what queries must have in common to run together: the size class, the key, and whether they may end at any time
QueueForm = tuple[int, Hashable, bool]


class QueuedQuery:
    """A query in a queue, as batch policies see it. ``deadline``: when the device must have answered it."""

    __slots__ = ("arrived", "deadline", "device", "form", "id", "query", "queue", "rows")

    def __init__(self, query: WaitingQuery, device: QueuedDevice, queue: ApplicationQueue) -> None:
        endless = query.deadline == INF
        self.id = query.id
        self.arrived = query.arrived
        self.deadline = query.arrived + queue.terms.slo_s if endless else query.deadline - device.rtt_s
        self.rows = query.rows
        self.query = query
        self.device = device
        self.queue = queue
        self.form = (query.query_class.size, query.key, endless)


def _order(query: QueuedQuery) -> tuple[float, int]:
    return query.deadline, query.id


class Candidates:
    """What a queue may run for queries of a size class.

    Args:
        options: those that may answer the queries. Planned ones are preferred; they are relieved by the others.
        rates: of the planned ones in rows/s, which take turns by them; None: the first one comes first.
        latency: seconds that an option takes on this device, to count on.
    """

    def __init__(
        self, options: Sequence[ServingOption], narrow: bool, latency: Callable[[ServingOption], LatencyModel]
    ) -> None:
        planned = [option for option in options if option.planned]
        others = [option for option in options if not option.planned]
        relief: list[Candidate] = []
        if planned and not narrow:
            relief = _relief(planned, others, latency)
        elif not planned and narrow:
            # Least accurate first: it is what was asked for, and likely the fastest.
            others.sort(key=lambda option: (option.accuracy, option.variant))
        self.planned = [_candidate(option, latency, option.turn_rows) for option in planned or others]
        self.candidates = self.planned + relief
        self.options = {option.variant: option for option in options}
        self.latencies = {candidate.variant: candidate.latency for candidate in self.candidates}
        self.rates = {option.variant: option.rate for option in planned}
        self.in_turns = len(planned) > 1 and not narrow

    def in_turn(self, served: dict[Hashable, float]) -> list[Candidate]:
        """The candidates where planned ones take turns, first the one with the least rows ``served`` for its rate."""
        first = min(self.planned, key=lambda c: behind(served.get(c.variant, 0.0), self.rates[c.variant]))
        return [first, *(candidate for candidate in self.candidates if candidate is not first)]


def _candidate(option: ServingOption, latency: Callable[[ServingOption], LatencyModel], rows: int) -> Candidate:
    typical = None if option.bound is option.latency else option.latency
    return Candidate(option.variant, option.accuracy, latency(option), rows, option.planned, typical)


def _relief(
    planned: Sequence[ServingOption], others: Sequence[ServingOption], latency: Callable[[ServingOption], LatencyModel]
) -> list[Candidate]:
    """Options with a higher throughput than every planned one, in turns no longer than theirs."""
    turns = [(option.bound, option.turn_rows) for option in planned]
    found = [
        _candidate(option, latency, min(rows, option.max_rows))
        for option in others
        if (rows := relief_rows(turns, option.bound))
    ]
    return sorted(found, key=lambda candidate: (-candidate.accuracy, candidate.variant))


class Ask(NamedTuple):
    """What the policy of a queue decided.

    Attributes:
        part: of the queue, for which it was decided; ``choice``: among what.
        drops: from any part, with the ids.
    """

    decision: Decision
    part: list[QueuedQuery]
    choice: Candidates
    drops: list[tuple[list[QueuedQuery], tuple[int, ...]]]


class ApplicationQueue:
    """Queries of an application that wait for a device, by (deadline, id), in parts by what may run together.

    Args:
        permitted: ids of the only variants that may answer them; None: all.
        policy: decides which of them run, and when.
    """

    def __init__(
        self, application: str, permitted: frozenset[Hashable] | None, policy: BatchPolicy, terms: ServiceTerms
    ) -> None:
        self.application = application
        self.permitted = permitted
        self.name = application if permitted is None else f"{application} {sorted(map(str, permitted))}"
        self.policy = policy
        self.terms = terms
        self.parts: dict[QueueForm, list[QueuedQuery]] = {}
        self.rows = 0
        #: rows by variant since the options changed
        self.served: dict[Hashable, float] = {}
        #: by size class, since latencies changed
        self.choices: dict[int, Candidates] = {}

    def add(self, queued: QueuedQuery) -> None:
        """Queue a query."""
        part = self.parts.get(queued.form)
        if part is None:
            self.parts[queued.form] = [queued]
        elif part[-1].deadline <= queued.deadline and part[-1].id < queued.id:
            part.append(queued)
        else:
            insort(part, queued, key=_order)
        self.rows += queued.rows

    def take(self, part: list[QueuedQuery], ids: tuple[int, ...]) -> list[QueuedQuery]:
        """Take queries out of a part of the queue."""
        count = len(ids)
        taken = part[:count]
        if tuple([queued.id for queued in taken]) == ids:
            del part[:count]
        else:
            wanted = set(ids)
            taken = [queued for queued in part if queued.id in wanted]
            part[:] = [queued for queued in part if queued.id not in wanted]
        for queued in taken:
            self.rows -= queued.rows
        if not part:
            del self.parts[taken[0].form]
        return taken

    def remove(self, queued: QueuedQuery) -> None:
        """Take a query out."""
        self.take(self.parts[queued.form], (queued.id,))

    def clear(self, form: QueueForm | None = None) -> list[QueuedQuery]:
        """Take all queries out, or all of one form."""
        forms = list(self.parts) if form is None else [form]
        taken = [queued for some in forms for queued in self.parts.pop(some)]
        self.rows -= sum([queued.rows for queued in taken])
        return taken

    def ask(self, now: float, blocking_s: float, choose: Callable[[ApplicationQueue, int], Candidates]) -> Ask:
        """What the policy decides; it sees queries that may run together, and those of the next part where the ones
        before rather wait. Nothing is taken out."""
        parts = self.parts.items()
        if len(parts) > 1:
            parts = sorted(parts, key=lambda item: _order(item[1][0]))[:MOST_PARTS]
        drops, until = [], math.inf
        for (size, _, endless), part in parts:
            choice = self.choices.get(size) or choose(self, size)
            candidates = choice.in_turn(self.served) if choice.in_turns else choice.candidates
            late = "serve" if endless or self.terms.serve_late else "shed"
            decision = self.policy.decide(LaneView(now, part, candidates, late, blocking_s))
            if decision.drop:
                drops.append((part, decision.drop))
            if decision.run or len(parts) == 1:
                return Ask(decision, part, choice, drops)
            until = min(until, decision.wait_until)
        return Ask(Decision(wait_until=until), next(iter(parts))[1], choice, drops)
