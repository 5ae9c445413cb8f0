"""A row for each query, whose answer is compared with the right one."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from .peers import End, Peer
from .records import ROW, WRONG

#: relative and absolute: other batch sizes round differently
TOLERANCE = 1e-3
#: error texts that are kept
NOTES = 10


class Book:
    """Ends of queries.

    Args:
        answers: by variant, the FP32 output of each request; nothing for a variant whose answers are not checked;
            empty: any variant may answer.
    """

    def __init__(self, answers: Mapping[str, Sequence[bytes]]):
        self._places = {name: place for place, name in enumerate(answers)}
        self._any_variant = not answers
        self._answers = list(answers.values())
        #: by variant and request: outputs that were found right
        self._known = [[{answer} for answer in of] for of in self._answers]
        self.notes: list[str] = []
        self.forget()

    @property
    def variants(self) -> list[str]:
        return list(self._places)

    def forget(self) -> None:
        self._times, self._rest = array("d"), array("i")
        self.answered = 0

    def note(self, request: int, due: float, status: int, note: str = "") -> None:
        if note and len(self.notes) < NOTES:
            self.notes.append(note)
        self._times.extend((due, time.perf_counter(), float("nan"), 0.0, 0.0))
        self._rest.extend((status, 0, -1, 0, request))

    def add(self, peer: Peer, now: float, end: End) -> None:
        if self._any_variant and end.variant:
            self._places.setdefault(end.variant, len(self._places))
        status, place, note = end.status, self._places.get(end.variant, -1), end.note
        if end.output is not None:
            if self._is_right(end.output, place, peer.request):
                self.answered += 1
            else:
                status, note = WRONG, f"a wrong answer of variant {end.variant!r}: {bytes(end.output[:40])!r}"
        if note and len(self.notes) < NOTES:
            self.notes.append(note)
        self._times.extend((peer.due, peer.sent, now, end.queue_ms, end.accuracy))
        self._rest.extend((status, end.retry, place, end.batch, peer.request))

    def _is_right(self, output: bytes, place: int, request: int) -> bool:
        if self._any_variant:
            return True
        if place < 0:
            return False
        if not self._known[place]:
            return True
        known = self._known[place][request]
        if output in known:
            return True
        wanted = np.frombuffer(self._answers[place][request], "<f4")
        if len(output) != wanted.nbytes:
            return False
        if not np.allclose(np.frombuffer(output, "<f4"), wanted, TOLERANCE, TOLERANCE):
            return False
        known.add(output)
        return True

    def rows(self, began: float) -> np.ndarray:
        """All rows in the order in which queries were due, with times since ``began``."""
        times = np.frombuffer(self._times, "f8").reshape(-1, 5)
        rest = np.frombuffer(self._rest, "i4").reshape(-1, 5)
        rows = np.zeros(len(times), ROW)
        for column, name in enumerate(("due", "sent", "ended")):
            rows[name] = times[:, column] - began
        rows["queue_ms"], rows["accuracy"] = times[:, 3], times[:, 4]
        for column, name in enumerate(("status", "retry", "variant", "batch", "request")):
            rows[name] = rest[:, column]
        return rows[np.argsort(rows["due"], kind="stable")]
