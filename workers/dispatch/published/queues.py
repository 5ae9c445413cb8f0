"""The queue of an application on a device, with its policy and options. Pure."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from itertools import groupby
from typing import NamedTuple

from ..binding import ServiceTerms, WaitingQuery
from ..latency import LatencyModel
from ..options import INF, ServingOption
from ..policy_tables import PolicySet
from .load_monitor import LoadMonitor
from .policy import BatchPolicy, Candidate, Decision, QueueView

#: parts of a queue that a policy is asked about until one of them runs; the others have later deadlines
MOST_PARTS = 8


class BatchKey(NamedTuple):
    """Equal for queries that may run together; ``endless``: without a deadline."""

    size: int
    key: Hashable
    endless: bool


class QueuedQuery:
    __slots__ = ("arrived", "batch_key", "deadline", "id", "query", "queue", "rows")

    def __init__(self, query: WaitingQuery, rtt_s: float, queue: ApplicationQueue) -> None:
        endless = query.deadline == INF
        self.id = query.id
        self.arrived = query.arrived
        self.deadline = query.arrived + queue.terms.slo_s if endless else query.deadline - rtt_s
        self.rows = query.rows
        self.query = query
        self.queue = queue
        self.batch_key = BatchKey(query.query_class.size, query.key, endless)


def _order(query: QueuedQuery) -> tuple[float, int]:
    return query.deadline, query.id


class CandidateSet:
    """Options of a queue for queries of a size class.

    Args:
        restricted: the queries permit some variants only, planned or not.
        latency: seconds by rows that an option takes on this device.
    Attributes:
        candidates: the planned ones, the highest rate first, then the others.
        options: by variant.
    """

    def __init__(
        self,
        options: Sequence[ServingOption],
        restricted: bool,
        latency: Callable[[ServingOption], LatencyModel],
        policies: PolicySet | None = None,
    ) -> None:
        planned = sorted([option for option in options if option.planned], key=lambda option: -option.rate)
        others = [option for option in options if not option.planned]
        if restricted:
            # Least accurate first: it is what was asked for, and likely the fastest.
            others = [] if planned else sorted(others, key=lambda option: (option.accuracy, option.variant))
        self.candidates = [_candidate(option, latency) for option in planned + others]
        self.options = {option.variant: option for option in options}
        self.policies = policies


def _candidate(option: ServingOption, latency: Callable[[ServingOption], LatencyModel]) -> Candidate:
    typical = None if option.bound is option.latency else option.latency
    model = latency(option)
    return Candidate(option.variant, option.accuracy, model, option.slice_rows, typical, option.max_rows)


class ApplicationQueue:
    """Queries of an application that wait for a device, by (deadline, id), in parts that may run together.

    Args:
        permitted: ids of the only variants that may answer them; None: all.
        load: of the application, on all devices.
    Attributes:
        ran_at: when its latest batch was sent.
    """

    def __init__(
        self,
        application: str,
        permitted: frozenset[Hashable] | None,
        policy: BatchPolicy,
        terms: ServiceTerms,
        load: LoadMonitor,
    ) -> None:
        self.application = application
        self.permitted = permitted
        self.policy = policy
        self.terms = terms
        self.load = load
        self.parts: dict[BatchKey, list[QueuedQuery]] = {}
        self.rows = 0
        self.ran_at = -INF

    def add(self, queued: QueuedQuery) -> None:
        insort(self.parts.setdefault(queued.batch_key, []), queued, key=_order)
        self.rows += queued.rows

    def take(self, queries: Sequence[QueuedQuery]) -> None:
        for key, group in groupby(queries, key=lambda queued: queued.batch_key):
            part, taken = self.parts[key], list(group)
            if part[: len(taken)] == taken:
                del part[: len(taken)]
            else:
                gone = set(taken)
                part[:] = [queued for queued in part if queued not in gone]
            if not part:
                del self.parts[key]
        self.rows -= sum([queued.rows for queued in queries])

    def clear(self, keys: Sequence[BatchKey] | None = None) -> list[QueuedQuery]:
        taken = [queued for key in list(self.parts if keys is None else keys) for queued in self.parts.pop(key)]
        self.rows -= sum([queued.rows for queued in taken])
        return taken

    def decide(self, now: float, slack_s: float, choose: Callable[[ApplicationQueue, int], CandidateSet]) -> Decision:
        """Return its policy's decision. Nothing is taken out.

        The policy sees queries that may run together, and those of the next part where the ones before rather wait.
        """
        parts = sorted(self.parts.values(), key=lambda part: _order(part[0]))[:MOST_PARTS]
        drops: list[QueuedQuery] = []
        until = INF
        for part in parts:
            size, _, endless = part[0].batch_key
            choice = choose(self, size)
            late = endless or self.terms.serve_late
            decision = self.policy.decide(
                QueueView(now, part, choice.candidates, late, slack_s, choice.policies, self.load)
            )
            drops += decision.drop
            if decision.run:
                return Decision(decision.run, decision.candidate, drops)
            until = min(until, decision.wait_until)
        return Decision(drop=drops, wait_until=until)
