"""Trouble with Redis or the database, as this process meets it, for console, log and pauses."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from django.db import DatabaseError

from registry import clock
from workers import log

logger = log.get("troubles")

REDIS, DATABASE = "redis", "database"
#: the log repeats a trouble that lasts at most this often, in seconds
LOG_EVERY_S = 60.0
#: seconds after a failure for which statistics are dropped unsent: each would wait for its time-out
PAUSE_S = 5.0
#: seconds without a failure after which a trouble is over although nothing succeeded since
FORGET_S = 120.0


@dataclass
class Trouble:
    what: str
    detail: str
    since: float
    latest: float
    logged: float
    failures: int = 1


_lock = threading.Lock()
_troubles: dict[str, Trouble] = {}


def occurred(error: Exception) -> None:
    what = DATABASE if isinstance(error, DatabaseError) else REDIS
    detail, now = f"{type(error).__name__}: {error}"[:300], clock.steady()
    with _lock:
        trouble = _troubles.get(what)
        if trouble is None:
            trouble = _troubles[what] = Trouble(what, detail, now, now, now)
        else:
            trouble.detail, trouble.latest, trouble.failures = detail, now, trouble.failures + 1
            if now - trouble.logged < LOG_EVERY_S:
                return
            trouble.logged = now
    logger.error("trouble", of=what, error=detail, lasts_s=round(now - trouble.since), failures=trouble.failures)


def over(what: str) -> None:
    if what not in _troubles:
        return
    with _lock:
        trouble = _troubles.pop(what, None)
    if trouble is not None:
        logger.info("trouble_over", of=what, lasted_s=round(clock.steady() - trouble.since))


def pausing(what: str) -> bool:
    trouble = _troubles.get(what)
    return trouble is not None and clock.steady() - trouble.latest < PAUSE_S


def current() -> list[dict]:
    """Troubles of now for people: ``what``, ``since`` (unix seconds) and ``detail``."""
    now = clock.steady()
    return [
        {"what": one.what, "since": clock.wall() - (now - one.since), "detail": one.detail}
        for one in list(_troubles.values())
        if now - one.latest < FORGET_S
    ]
