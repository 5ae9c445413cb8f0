"""The list of repairs as of now."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from registry import clock
from registry.access.roles import AccessRole
from scheduler import troubles
from scheduler.repairs import facts, known, samples
from scheduler.repairs.checks import CHECKS, box
from scheduler.repairs.in_time import InTime, in_time
from scheduler.repairs.repair import Repair, Severity
from workers import log

logger = log.get("repairs")

#: browsers share one look within this many seconds
SHARED_S = 2.0
#: share of one core that shared looks may take: those of a large cluster take longer, and are taken less often
SHARED_PART = 0.05
_FIRST = (Severity.ERROR, Severity.WARNING)

_lock = threading.Lock()
#: until when it is shared, and the look
_shared: tuple[float, Look] | None = None


class Look(list[Repair]):
    """Repairs of one look, with how applications answered then; None: not known."""

    in_time: InTime | None = None


def current() -> Look:
    """All repairs, ignored ones too: errors first, then by since when."""
    answered = None
    try:
        read = facts.Facts()
        found = known.shown(_checked(read))
        answered = in_time(read)
    except DatabaseError as error:
        # Without it nothing else is known.
        troubles.occurred(error)
        found = list(box.troubles(facts.Facts()))
    look = Look(sorted(found, key=lambda each: (_FIRST.index(each.severity), _minute(each), each.key)))
    look.in_time = answered
    return look


def _minute(repair: Repair) -> datetime:
    """When it began, to the minute: what one look finds stays together."""
    return (repair.since or datetime.now(UTC)).replace(second=0, microsecond=0)


def shared() -> Look:
    """Repairs as :func:`current` gives them, some seconds old, for many browsers."""
    global _shared
    with _lock:
        if _shared is None or clock.steady() > _shared[0]:
            began = time.thread_time()
            found = current()
            lasts = max(SHARED_S, (time.thread_time() - began) / SHARED_PART)
            _shared = clock.steady() + lasts, found
        return _shared[1]


def forget() -> None:
    global _shared
    with _lock:
        _shared = None


def needing(found: Iterable[Repair], role: AccessRole) -> list[Repair]:
    """Those that the role may see and that nobody ignores."""
    return [repair for repair in found if repair.visible(role) and not repair.ignored_by]


def summary(found: Iterable[Repair], role: AccessRole) -> dict[str, Any]:
    """How many repairs need a person, by severity, and a name for what the list says."""
    visible = [repair for repair in found if repair.visible(role)]
    mine = needing(visible, role)
    counts = {str(severity): sum(repair.severity == severity for repair in mine) for severity in _FIRST}
    says = "\n".join(f"{repair.fingerprint} {repair.effect} {repair.ignored_by}" for repair in visible)
    if not mine and isinstance(found, Look):
        says += f"\n{found.in_time}"
    return {"count": len(mine), **counts, "version": hashlib.sha256(says.encode()).hexdigest()[:16]}


def watch() -> None:
    samples.watch_clock()
    samples.sample_disk(box.disk_below(settings.NEREUS.home).free)
    read = facts.Facts()
    found = _checked(read)
    known.remember(found, complete=read.redis)


def _checked(read: facts.Facts) -> list[Repair]:
    found = []
    for check in CHECKS:
        try:
            found.extend(check(read))
        except DatabaseError:
            raise
        except Exception:
            # The others must be shown all the same.
            logger.exception("repair_check_failed", check=check.__name__)
    return found
