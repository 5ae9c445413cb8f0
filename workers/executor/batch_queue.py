"""The queue of batches: in order of arrival, each run whole on its variant. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from workers.protocol.frame_connection import FrameConnection

from .batch import DispatchedBatch, RefusalInfo


class BatchQueue:
    """Batches that wait for the device.

    Attributes:
        waiting: in order of arrival; a batch of which every query was cancelled stays as an empty one.
        closed: why nothing new is taken; empty while it is.
        last_arrival: when the last query came, in seconds on the monotonic clock.
    """

    def __init__(self) -> None:
        self.waiting: deque[DispatchedBatch] = deque()
        self.closed = ""
        self.last_arrival = -1e9

    @property
    def rows(self) -> int:
        return sum([batch.rows for batch in self.waiting])

    def rows_by_application(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for batch in self.waiting:
            if batch.rows:
                totals[batch.application] = totals.get(batch.application, 0) + batch.rows
        return totals

    def needs(self, variant: int) -> bool:
        return any(batch.variant == variant and batch.rows for batch in self.waiting)

    def withdraw(self, connection: FrameConnection, id: int) -> bool:
        """Take one query out; False where it does not wait here."""
        for batch in self.waiting:
            if batch.connection is connection and id in batch.ids:
                batch.take_out([batch.ids.index(id)])
                return True
        return False

    def forget(self, connection: FrameConnection) -> list[RefusalInfo]:
        out = [info for batch in self.waiting if batch.connection is connection for info in batch.refusal_infos()]
        self.waiting = deque(batch for batch in self.waiting if batch.connection is not connection)
        return out

    def clear(self) -> list[RefusalInfo]:
        out = [info for batch in self.waiting for info in batch.refusal_infos()]
        self.waiting.clear()
        return out

    def strand(self, variants: Collection[int]) -> list[RefusalInfo]:
        """The queries of batches whose variant is none of these, taken out."""
        stranded = [batch for batch in self.waiting if batch.variant not in variants]
        self.waiting = deque(batch for batch in self.waiting if batch.variant in variants)
        return [info for batch in stranded for info in batch.refusal_infos()]
