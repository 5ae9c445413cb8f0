"""A plan whose worker ended is made by another worker, within seconds.

The worker ended in the middle of it. Its request is lost with the worker, and its lease stays behind. The worker of the
``control`` queue, which no solve keeps busy, clears such a lease and requests a plan in its place.
"""

from __future__ import annotations

import threading

from django.db import DatabaseError, close_old_connections
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError

from scheduler import live
from scheduler.control import leases
from scheduler.control.requests import WAITING, request_plan
from workers import log

logger = log.get("succession")

#: seconds between two looks
EVERY_S = 1.0

_ended = threading.Event()


def start() -> None:
    """Watch the lease on planning, in a thread of this process."""
    _ended.clear()
    threading.Thread(target=_watch, name="succession", daemon=True).start()


def stop() -> None:
    """End the thread."""
    _ended.set()


def look(watch: leases.LeaseWatch) -> bool:
    """Request a plan in the place of one that was abandoned; whether there was one."""
    if not watch.abandoned():
        return False
    # The lost worker may have taken the request that waits with it.
    live.client().delete(WAITING)
    request_plan("change", "the worker that was planning ended")
    logger.warning("plan_abandoned")
    return True


def _watch() -> None:
    watch = leases.LeaseWatch(leases.PLAN)
    while not _ended.wait(EVERY_S):
        try:
            look(watch)
        except (DatabaseError, RedisError, BrokerError, OSError) as error:
            logger.warning("lease_not_watched", error=str(error))
        finally:
            close_old_connections()
