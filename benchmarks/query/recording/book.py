"""Queries of the load generator, and the book that is kept of them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from benchmarks.query.generator import TOLERANCE

from .records import ROW, WRONG

#: notes that are kept
NOTES = 10


class Query:
    """One query on its way. ``request``: its place among the requests. The rest as in :data:`.records.ROW`."""

    __slots__ = ("batch", "due", "note", "queue_ms", "request", "retry", "right", "sent", "status", "variant")

    def __init__(self, request: int, due: float):
        self.request = request
        self.due = due
        self.sent = math.nan
        self.status = 0
        self.retry = False
        self.variant = b""
        self.queue_ms = 0.0
        self.batch = 0
        #: what an answer ended in
        self.right: bytes | memoryview | None = None
        self.note = ""

    def fail(self, status: int, note: str) -> None:
        """It has no answer."""
        self.status, self.note = status, note


#: told of each end: (connection, query or None, whether the connection can be used again)
Ended = Callable[["Peer", Query | None, bool], None]


class Peer(Protocol):
    """A connection with at most one query under way."""

    def send(self, query: Query, request: bytes) -> None:
        """Send it; its end is told once."""

    def abandon(self) -> None:
        """Close at once; what is under way is not told of any more."""

    async def close(self) -> None:
        """Close."""


class Book:
    """What became of each query, in the order in which they were made, which is that of their due times."""

    def __init__(self, requests: Sequence[bytes], answers: Mapping[str, Sequence[bytes]]):
        self._requests = len(requests)
        self._places = {name.encode(): place for place, name in enumerate(answers)}
        self._answers = [list(of) for of in answers.values()]
        #: by variant and request, what an answer may end in
        self._known = [[{answer} for answer in of] for of in self._answers]
        self.notes: list[str] = []
        self.forget()

    def forget(self) -> None:
        """What is kept begins now."""
        self._made = 0
        self._numbers: dict[Query, int] = {}
        self._ended_at: dict[int, tuple[Query, float]] = {}
        self._times = array("d")
        self._rest: list[tuple] = []

    def query(self, due: float) -> Query:
        """The next query."""
        query = Query(self._made % self._requests, due)
        self._numbers[query] = self._made
        self._made += 1
        return query

    def ended(self, query: Query, now: float) -> None:
        """It has its end, and its answer is looked at."""
        place = self._places.get(query.variant, -1)
        if query.right is not None and not self._is_right(query, place):
            query.fail(WRONG, f"a wrong answer of variant {query.variant!r}: {bytes(query.right[:40])!r}")
        if query.note and len(self.notes) < NOTES:
            self.notes.append(query.note)
        number = self._numbers.pop(query)
        self._times.extend((number, query.due, query.sent, now))
        self._rest.append((query.status, query.retry, place, query.queue_ms, query.batch))

    def _is_right(self, query: Query, place: int) -> bool:
        if place < 0:
            return False
        known, told = self._known[place][query.request], bytes(query.right)
        if told in known:
            return True
        wanted = np.frombuffer(self._answers[place][query.request], "<f4")
        # Other batch sizes round differently; each such answer is looked at once.
        if len(told) != 4 * len(wanted) or not np.allclose(np.frombuffer(told, "<f4"), wanted, TOLERANCE, TOLERANCE):
            return False
        known.add(told)
        return True

    def any_answered(self) -> bool:
        """Whether some query was answered rightly."""
        return any(status >= 0 and place >= 0 for status, _, place, *_ in self._rest)

    def rows(self, began: float) -> np.ndarray:
        """All that ended, with times since ``began``."""
        times = np.frombuffer(self._times, "f8").reshape(-1, 4)
        rows = np.zeros(len(times), ROW)
        for column, name in enumerate(("due", "sent", "ended"), 1):
            rows[name] = times[:, column] - began
        for column, name in enumerate(("status", "retry", "variant", "queue_ms", "batch")):
            rows[name] = [one[column] for one in self._rest]
        return rows[np.argsort(times[:, 0], kind="stable")]
