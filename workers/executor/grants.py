"""Batches that gateways have put together: kept in order of arrival, each run whole on the variant it names. Pure.

A gateway that binds queries late decides variant and company itself and grants a batch just before the device is free,
so nothing is decided anew here. What remains is to take turns with the lanes of queries that came singly
(:mod:`workers.batching.turns`, where all granted batches together count as one lane), and not to run what time has run
out for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping

from workers.batching.base import Decision
from workers.batching.turns import Wish
from workers.protocol.frames import FrameConnection

from .granted import Granted
from .loaded import Loaded
from .queries import Ticket

#: the arbiter's name for granted batches; no application's name has a space in front
LANE = " granted"
#: how slowly a long turn is forgotten, by each turn after it; and for how many seconds a last one counts
_FORGET, _COUNTS_S = 0.99, 5.0


class Grants:
    """The granted batches of a device that wait for their turn."""

    def __init__(self) -> None:
        #: in order of arrival; for others to look at
        self.waiting: deque[Granted] = deque()
        self._longest_s = 0.0
        self._wished_at = -math.inf

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def rows(self) -> int:
        """Rows that wait."""
        return sum([granted.rows for granted in self.waiting])

    def longest_s(self, now: float) -> float:
        """The longest turn of late, in seconds: what lanes beside must expect; 0 where none came for a while."""
        return self._longest_s if now - self._wished_at < _COUNTS_S else 0.0

    def queued(self, totals: dict[str, int]) -> None:
        """Add the rows that wait to ``totals``, by application."""
        for granted in self.waiting:
            if granted.rows:
                totals[granted.application] = totals.get(granted.application, 0) + granted.rows

    def needs(self, variant: int) -> bool:
        """Whether a batch waits for this variant."""
        return any(granted.variant == variant and granted.rows for granted in self.waiting)

    def holds(self, connection: FrameConnection, ids: Collection[int]) -> set[int]:
        """Which of these queries of a gateway wait here."""
        found: set[int] = set()
        for granted in self.waiting:
            if granted.connection is connection:
                found.update(granted.ids)
        return found.intersection(ids) if found else found

    def add(self, granted: Granted) -> None:
        self.waiting.append(granted)

    def cancel(self, connection: FrameConnection, id: int) -> bool:
        """Take one query out; False where it does not wait here."""
        for granted in self.waiting:
            if granted.connection is connection and id in granted.ids:
                granted.take_out([granted.ids.index(id)])
                return True
        return False

    def forget(self, connection: FrameConnection) -> None:
        """Let all batches of a gateway go that is not there any more."""
        self.waiting = deque(granted for granted in self.waiting if granted.connection is not connection)

    def clear(self) -> list[Ticket]:
        """Every query that waits, taken out."""
        out = [ticket for granted in self.waiting for ticket in granted.tickets()]
        self.waiting.clear()
        return out

    def strand(self, loaded: Mapping[int, Loaded]) -> list[Ticket]:
        """The queries of batches whose variant is not loaded (any more), taken out."""
        stranded = [granted for granted in self.waiting if granted.variant not in loaded]
        self.waiting = deque(granted for granted in self.waiting if granted.variant in loaded)
        return [ticket for granted in stranded for ticket in granted.tickets()]

    def late(self, now: float, loaded: Mapping[int, Loaded]) -> list[Ticket]:
        """The queries of the next batch that would be late even if they ran at once and alone, taken out. Where that
        leaves a batch without queries the one behind it is looked at."""
        late: list[Ticket] = []
        while self.waiting:
            granted = self.waiting[0]
            late += given_up(granted, loaded[granted.variant], now)
            if granted.rows:
                break
            self.waiting.popleft()
        return late

    def wish(self, now: float, loaded: Mapping[int, Loaded]) -> Wish | None:
        """What the next batch asks of the arbiter; None: nothing waits."""
        if not self.waiting:
            return None
        granted = self.waiting[0]
        batch_s = loaded[granted.variant].at(granted.extent).model(now).seconds(granted.rows)
        self._longest_s = max(batch_s, self.longest_s(now))
        self._wished_at = now
        decision = Decision(run=tuple(granted.ids), variant=granted.variant)
        return Wish(LANE, decision, granted.arrived, granted.deadline(now + batch_s), batch_s)

    def ended(self, batch_s: float, now: float) -> None:
        """A batch that was to take ``batch_s`` seconds had its turn."""
        self._longest_s = max(batch_s, _FORGET * self.longest_s(now))
        self._wished_at = now

    def take(self) -> Granted:
        """The next batch, taken out."""
        return self.waiting.popleft()


def given_up(granted: Granted, loaded: Loaded, now: float) -> list[Ticket]:
    """The queries of a batch that would be late even if they ran at ``now`` and alone, taken out."""
    if loaded.application.late == "serve":
        return []
    typical = loaded.at(granted.extent).typical
    if now + typical.ceiling(granted.largest) <= granted.soonest:
        return []
    sizes = zip(granted.layouts, granted.budgets, strict=True)
    return granted.take_out(
        [
            k
            for k, (lay, budget) in enumerate(sizes)
            if now + loaded.at(lay.extent).typical.seconds(lay.rows) > granted.arrived + budget
        ]
    )
