"""One queue of the device, by deadline, with the batch policy and the variants that serve it. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable

import msgspec

from workers.batching.base import BatchPolicy, Candidate
from workers.batching.relief import behind
from workers.protocol.specs import ApplicationSpec

from .loaded import Loaded
from .queries import Query

#: parts of a queue, by form, that a policy is asked about until one of them runs; the others have later deadlines
MOST_PARTS = 8


class Lane:
    """A queue with its policy. ``narrow``: ids of the only variants allowed, None for the application's default."""

    def __init__(self, application: ApplicationSpec, narrow: tuple[int, ...] | None, policy: BatchPolicy):
        self.application = application
        self.narrow = narrow
        self.policy = policy
        self.queue: list[Query] = []
        self._forms: dict[Hashable, int] = {}
        self.variants: tuple[Loaded, ...] = ()
        #: faster warm variants, with the rows that they may take: no longer a turn than the lane's own
        self.relief: tuple[tuple[Loaded, int], ...] = ()
        self.rows = 0
        self.name = application.name if narrow is None else f"{application.name} {narrow}"

    def candidates(self, now: float, extent: int = 0) -> list[Candidate]:
        """What the lane is planned to run, the default first, as queries of that extent see it."""
        return [loaded.candidate(now, extent) for loaded in self.in_turn()]

    def relief_candidates(self, now: float, extent: int = 0) -> list[Candidate]:
        """What a policy may choose instead where that would be late."""
        return [
            msgspec.structs.replace(loaded.candidate(now, extent), planned=False, max_batch=rows)
            for loaded, rows in self.relief
            if not loaded.closing
        ]

    def add(self, query: Query) -> None:
        insort(self.queue, query, key=_order)
        self.rows += query.rows
        self._forms[query.form] = self._forms.get(query.form, 0) + 1
        query.lane = self

    def remove(self, query: Query) -> None:
        index = bisect_left(self.queue, _order(query), key=_order)
        assert self.queue[index] is query
        del self.queue[index]
        self.rows -= query.rows
        self._forms[query.form] -= 1
        if not self._forms[query.form]:
            del self._forms[query.form]
        query.lane = None

    def alike(self) -> list[list[Query]]:
        """The queue in parts that may stand in one batch each, by the earliest deadline; of many parts some."""
        if len(self._forms) == 1:
            return [self.queue]
        parts: dict[Hashable, list[Query]] = {}
        for query in self.queue:
            parts.setdefault(query.form, []).append(query)
        return list(parts.values())[:MOST_PARTS]

    def in_turn(self) -> list[Loaded]:
        """The lane's variants, first the one whose turn it is: the least rows served for its planned rate, so that
        several residents of one application share its queries as the plan says, whatever their batch sizes."""
        if self.narrow is not None or len(self.variants) < 2:
            return list(self.variants)
        first = min(self.variants, key=lambda loaded: behind(loaded.served, loaded.rate))
        return [first, *(loaded for loaded in self.variants if loaded is not first)]


def _order(query: Query) -> tuple[float, int]:
    return query.deadline, query.id
