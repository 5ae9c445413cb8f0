"""Batches that gateways have put together: kept in order of arrival, each run whole on the variant it names. Pure.

A gateway that binds queries late decides variant and company itself and grants a batch just before the device is free,
so nothing is decided anew here. What remains is to take turns with the lanes of queries that came singly
(:mod:`workers.batching.turns`, where all granted batches together count as one lane), and not to run what time has run
out for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from workers.batching.base import Decision
from workers.batching.turns import Wish
from workers.protocol.frames import FrameConnection

from .loaded import Loaded
from .queries import Query

#: the arbiter's name for granted batches; no application's name has a space in front
LANE = " granted"
#: how slowly a long turn is forgotten, by each turn after it; and for how many seconds a last one counts
_FORGET, _COUNTS_S = 0.99, 5.0


class Granted:
    """A granted batch that waits. ``variant``: id. ``limit``: rows that one run may take. ``arrived``: seconds on the
    event loop's clock."""

    __slots__ = ("application", "arrived", "connection", "limit", "queries", "rows", "variant")

    def __init__(self, application: str, variant: int, limit: int, connection: FrameConnection, arrived: float):
        self.application = application
        self.variant = variant
        self.limit = limit
        self.connection = connection
        self.arrived = arrived
        self.queries: list[Query] = []
        self.rows = 0

    def add(self, query: Query) -> None:
        self.queries.append(query)
        self.rows += query.rows
        query.lane = self

    def remove(self, query: Query) -> None:
        """Take one query out; the others stay."""
        self.queries.remove(query)
        self.rows -= query.rows
        query.lane = None


class Grants:
    """The granted batches of a device that wait for their turn."""

    def __init__(self) -> None:
        self._waiting: deque[Granted] = deque()
        self._longest_s = 0.0
        self._wished_at = -math.inf

    @property
    def rows(self) -> int:
        """Rows that wait."""
        return sum(granted.rows for granted in self._waiting)

    def longest_s(self, now: float) -> float:
        """The longest turn of late, in seconds: what lanes beside must expect; 0 where none came for a while."""
        return self._longest_s if now - self._wished_at < _COUNTS_S else 0.0

    def queued(self, totals: dict[str, int]) -> None:
        """Add the rows that wait to ``totals``, by application."""
        for granted in self._waiting:
            if granted.queries:
                totals[granted.application] = totals.get(granted.application, 0) + granted.rows

    def queries(self) -> list[Query]:
        """Every query that waits in a batch."""
        return [query for granted in self._waiting for query in granted.queries]

    def needs(self, variant: int) -> bool:
        """Whether a batch waits for this variant."""
        return any(granted.variant == variant and granted.queries for granted in self._waiting)

    def add(self, granted: Granted) -> None:
        self._waiting.append(granted)

    def strand(self, loaded: Mapping[int, Loaded]) -> list[Query]:
        """The queries of batches whose variant is not loaded (any more), taken out."""
        stranded = [query for granted in self._waiting if granted.variant not in loaded for query in granted.queries]
        for query in stranded:
            query.lane.remove(query)
        return stranded

    def late(self, now: float, loaded: Mapping[int, Loaded]) -> list[Query]:
        """The queries of the next batch that would be late even if they ran at once and alone, taken out. Where that
        leaves a batch without queries the one behind it is looked at."""
        late: list[Query] = []
        while self._waiting:
            granted = self._waiting[0]
            one = loaded.get(granted.variant)
            if granted.queries and one is not None and one.application.late != "serve":
                given_up = [
                    query
                    for query in granted.queries
                    if now + one.at(query.extent).typical.seconds(query.rows) > query.deadline
                ]
                for query in given_up:
                    granted.remove(query)
                late += given_up
            if granted.queries:
                break
            self._waiting.popleft()
        return late

    def wish(self, now: float, loaded: Mapping[int, Loaded]) -> Wish | None:
        """What the next batch asks of the arbiter; None: nothing waits."""
        if not self._waiting:
            return None
        granted = self._waiting[0]
        extent = max([query.extent for query in granted.queries], default=0)
        batch_s = loaded[granted.variant].at(extent).model(now).seconds(granted.rows)
        self._longest_s = max(batch_s, _FORGET * self.longest_s(now))
        self._wished_at = now
        ids = tuple(query.id for query in granted.queries)
        deadline = min((q.deadline for q in granted.queries if q.deadline >= now + batch_s), default=math.inf)
        return Wish(LANE, Decision(run=ids, variant=granted.variant), granted.arrived, deadline, batch_s)

    def take(self) -> Granted:
        """The next batch, taken out."""
        granted = self._waiting.popleft()
        for query in granted.queries:
            query.lane = None
        return granted
