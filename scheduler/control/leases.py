"""Leases on work that one process of the cluster does at a time.

A lease is a row: holder, epoch and a count of renewals. Its holder renews it; another that wants it and has seen
the same epoch and count for :data:`TTL_S` by its own clock takes it over. No clock is compared with another box's, and
each step is one conditional update, which SQLite and PostgreSQL carry out alike. A holder that was stalled finds
another epoch: what it wrote is not stored, since :meth:`HeldLease.confirm` runs in the transaction that stores it.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import DatabaseError, close_old_connections, connection
from django.db.models import F

from registry import clock
from scheduler import progress
from scheduler.models import WorkLease
from workers import log

logger = log.get("leases")

#: leases by name: planning, and periodic upkeep
PLAN, TEND = "plan", "tend"
#: seconds without a renewal after which a lease is taken over
TTL_S = 10.0
#: seconds between two renewals
RENEW_S = 1.0
#: seconds between two looks at a lease that another process holds
LOOK_S = 0.1


class LeaseLost(Exception):
    """Another process took the lease over; what was done under it counts for nothing."""


class HeldLease:
    """A lease that this process holds, and renews in a thread."""

    def __init__(self, name: str, holder: str, epoch: int) -> None:
        self.name, self.epoch = name, epoch
        self._holder = holder
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name=f"lease-{name}", daemon=True)
        self._renewing.start()

    def confirm(self) -> None:
        """Lock the lease's row; LeaseLost: this process holds it no longer.

        Call it first in the transaction that stores what was done under the lease.
        """
        if not self._row().select_for_update().exists():
            raise LeaseLost(f"lease on {self.name}: epoch {self.epoch} is over; another process took it over")

    def release(self) -> None:
        self._ended.set()
        self._renewing.join()
        self._row().update(holder="")

    def _row(self):
        return WorkLease.objects.filter(name=self.name, holder=self._holder, epoch=self.epoch)

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_S):
            try:
                renewed = self._row().update(renewals=F("renewals") + 1)
            except DatabaseError as error:
                logger.warning("lease_not_renewed", lease=self.name, error=str(error))
                continue
            finally:
                close_old_connections()
            if not renewed:
                logger.error("lease_lost", lease=self.name, epoch=self.epoch)
                break
        # The connection of this thread, which ends.
        connection.close()


class LeaseWatch:
    """One process' view of a lease: how long it has not been renewed by its own clock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._unchanged = clock.Unchanged()

    def look(self) -> tuple[WorkLease, float]:
        """The lease's row, and for how many seconds nobody has touched it.

        The row is made where there is none. Requests that come while others wait do not touch it.
        """
        row, _ = WorkLease.objects.get_or_create(name=self.name)
        touched = row.epoch, row.renewals, row.holder, row.started, row.waits
        return row, self._unchanged.ages({self.name: touched})[self.name]

    def take(self) -> HeldLease | None:
        row, age_s = self.look()
        if row.holder and age_s < TTL_S:
            return None
        if row.holder:
            logger.warning("lease_taken_over", lease=self.name, of=row.holder, epoch=row.epoch + 1)
        holder = f"{settings.NEREUS.node_name}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        if not row.touch(holder=holder, renewals=0, started=F("wanted")):
            return None
        return HeldLease(self.name, holder, row.epoch + 1)

    def abandoned(self) -> bool:
        """Clear a lease whose holder ended in mid-work, or whose work nobody took up.

        True in one of several processes that look.
        """
        row, age_s = self.look()
        return bool((row.holder or row.waits) and age_s >= TTL_S and row.touch(holder=""))


@contextmanager
def held(name: str, wait_s: float = float("inf")) -> Iterator[HeldLease | None]:
    """Hold a lease within the block; None: another one still does after ``wait_s``."""
    watch, until = LeaseWatch(name), clock.steady() + wait_s
    pause = threading.Event()
    while (lease := watch.take()) is None and clock.steady() < until:
        # Another process plans, which may take minutes.
        progress.report()
        pause.wait(LOOK_S)
    try:
        yield lease
    finally:
        if lease is not None:
            try:
                lease.release()
            except DatabaseError as error:
                # Nobody renews it any more.
                logger.warning("lease_not_released", lease=name, error=str(error))
