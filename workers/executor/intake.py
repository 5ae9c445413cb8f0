"""Checks the batches that gateways dispatch, and has them run, queued or refused."""

from __future__ import annotations

import time

from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import ReceivedBatch

from .accounting import Accounts
from .batch import DispatchedBatch, admit
from .batch_queue import BatchQueue
from .device_loop import DeviceLoop
from .leases import Lease
from .loaded import DeviceResidents
from .replies import Replies

_NOT_LEASED = "another core has this device"


class Intake:
    """A query is refused here, or answered once its batch has run."""

    def __init__(
        self,
        residents: DeviceResidents,
        queue: BatchQueue,
        device_loop: DeviceLoop,
        replies: Replies,
        accounts: Accounts,
        queue_rows: int,
        lease: Lease,
    ):
        self._residents = residents
        self._queue = queue
        self._device_loop = device_loop
        self._replies = replies
        self._accounts = accounts
        self._queue_rows = queue_rows
        self._lease = lease

    def dispatch(self, connection: FrameConnection, message: ReceivedBatch, body: memoryview) -> None:
        """Run or queue a batch; a query that is wrong in itself is refused alone."""
        now, name, queue, refuse = time.monotonic(), message.application, self._queue, self._replies.refuse
        if not self._lease.held_by(connection):
            return refuse(connection, [id for id, _, _ in message.queries], name, "not_leased", _NOT_LEASED, True)
        application = self._residents.applications.get(name)
        if application is None:
            text = f"application {name!r} is not on this device"
            return refuse(connection, [id for id, _, _ in message.queries], name, "not_resident", text, True)
        batch, wrong = admit(message, body, application, connection, now)
        for id, text in wrong:
            refuse(connection, [id], name, "invalid", text, False)
        idle = not queue.waiting
        if not batch.rows:
            return
        queue.last_arrival = now
        self._accounts.arrived(name, batch.rows)
        if queue.closed:
            return refuse(connection, batch.ids, name, "draining", queue.closed, True)
        if not idle:
            self._bound(batch)
            if not batch.rows:
                return
        # A variant that is about to be unloaded still runs what is here before it goes.
        loaded = self._residents.variants.get(message.variant)
        if loaded is None or loaded.variant.application != name:
            text = f"variant {message.variant} of {name} is not warm on this device"
            return self._replies.refuse_all(batch.refusal_infos(), "not_resident", text)
        self._device_loop.hand_back_late([batch], now)
        if batch.rows and not (idle and self._device_loop.start(batch, loaded)):
            queue.waiting.append(batch)
            self._device_loop.wake()

    def _bound(self, batch: DispatchedBatch) -> None:
        queued = self._queue.rows
        if not queued or queued + batch.largest <= self._queue_rows:
            return
        out = batch.take_out([k for k, shape in enumerate(batch.shapes) if queued + shape.rows > self._queue_rows])
        self._accounts.refused(batch.application, sum(info.rows for info in out))
        text = f"{queued} rows wait here already, the limit is {self._queue_rows}"
        ids = [info.id for info in out]
        self._replies.refuse(batch.connection, ids, batch.application, "overloaded", text, True)

    def withdraw(self, connection: FrameConnection, id: int) -> None:
        """Drop a waiting query; a running one is still answered."""
        if self._queue.withdraw(connection, id):
            self._device_loop.wake()

    def not_leased(self, connection: FrameConnection) -> None:
        self._replies.refuse_all(self._queue.forget(connection), "not_leased", _NOT_LEASED)
        self._device_loop.wake()

    def gone(self, connection: FrameConnection) -> None:
        self._queue.forget(connection)
        self._device_loop.wake()
