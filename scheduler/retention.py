"""Retention of rows whose number grows with time.

Nothing is deleted by its age on the wall clock. That clock may be decades off for a while, so limits are numbers of
rows, or times that this process has waited itself. Sessions are the exception: they end by the wall clock, as their
cookies do. So are audit entries (:func:`registry.audit.recording.prune`), once nobody has set it for a day.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.db import connection
from django.db.models import Max
from django.utils import timezone

from registry import clock
from registry.models import Gateway, Member, Node, ProfileJob
from registry.profiling import OPEN
from scheduler.history.folding import TIERS
from scheduler.history.models import HistoryName, HistoryPosition, HistoryRow, Mark
from scheduler.models import Plan, Promise, WhatIf
from workers import log

logger = log.get("retention")

#: plans that keep the problem they solved, with its profiles; others keep the inputs that explain them
KEEP_PROBLEMS = 200
#: ended profile jobs beside the newest of each variant and device type
KEEP_JOBS = 1000
#: promises, which are a few kilobytes each, and answers to what-ifs
KEEP_PROMISES, KEEP_WHAT_IFS = 2000, 100
#: entries of the admin pages' own log; people's notes in the history, and its other marks
KEEP_ADMIN_LOG, KEEP_MARKS = 10_000, 20_000
#: a name that this many folds did not use is in no row of the history
UNUSED_FOLDS = 2 * TIERS[-1].keep * TIERS[-1].resolution // TIERS[0].resolution
#: seconds after which a member is deleted that never was approved and no longer waits
PENDING_S = 3600.0
#: at most this many rows are changed at once, so that no other writer waits long
AT_ONCE = 500
#: pages of SQLite's file that are given back at once
PAGES = 256
#: seconds between two looks; plans come at one a second at most
EVERY_S = 60.0

_pending = clock.Unchanged()
_enforced_at: float | None = None


def enforce() -> None:
    global _enforced_at
    now = clock.steady()
    if _enforced_at is not None and now - _enforced_at < EVERY_S:
        return
    _enforced_at = now
    gone = {
        "plans": _beyond(Plan.objects, settings.NEREUS.keep_plans),
        "problems": _problems(),
        "promises": _beyond(Promise.objects, KEEP_PROMISES),
        "what_ifs": _beyond(WhatIf.objects, KEEP_WHAT_IFS),
        "jobs": _jobs(),
        "sessions": _sessions(),
        "admin_log": _beyond(LogEntry.objects, KEEP_ADMIN_LOG),
        "members": _strangers(),
        "notes": _beyond(Mark.objects.filter(kind=Mark.Kind.NOTE), KEEP_MARKS),
        "marks": _beyond(Mark.objects.exclude(kind=Mark.Kind.NOTE), KEEP_MARKS),
        "history_names": _history_names(),
        **{f"history_{each}s": _beyond(HistoryRow.objects.filter(resolution=each), keep) for each, keep in TIERS},
    }
    _give_back_pages()
    if gone := {name: count for name, count in gone.items() if count}:
        logger.info("rows_deleted", **gone)


def _beyond(rows, keep: int) -> int:
    return _some(rows.filter(pk__lte=_limit(rows, keep))).delete()[0]


def _limit(rows, keep: int) -> int:
    """The newest row beyond those to keep; 0: there is none."""
    return rows.order_by("-pk").values_list("pk", flat=True)[keep : keep + 1].first() or 0


def _some(rows):
    """The oldest of these, :data:`AT_ONCE` at most."""
    oldest = rows.order_by("pk").values_list("pk", flat=True)[:AT_ONCE]
    return rows.model.objects.filter(pk__in=list(oldest))


def _history_names() -> int:
    folds = HistoryPosition.objects.values_list("folds", flat=True).first() or 0
    return HistoryName.objects.filter(used__lt=folds - UNUSED_FOLDS).delete()[0] if folds > UNUSED_FOLDS else 0


def _problems() -> int:
    old = Plan.objects.filter(pk__lte=_limit(Plan.objects, KEEP_PROBLEMS)).exclude(problem={})
    return _some(old).update(problem={})


def _jobs() -> int:
    ended = ProfileJob.objects.exclude(state__in=OPEN)
    # The newest of each says that the variant was tried on the type; without it that would be ordered again.
    newest = ended.order_by().values("variant", "device_type").annotate(newest=Max("pk")).values("newest")
    return _some(ended.filter(pk__lte=_limit(ended, KEEP_JOBS)).exclude(pk__in=newest)).delete()[0]


def _sessions() -> int:
    """Those that ended, or would last longer than any can (made by a clock ahead)."""
    now = timezone.now()
    longest = timedelta(seconds=settings.SESSION_COOKIE_AGE)
    kept = Session.objects.filter(expire_date__gte=now - longest, expire_date__lte=now + longest + timedelta(days=1))
    return _some(Session.objects.exclude(pk__in=kept.values("pk"))).delete()[0]


def _strangers() -> int:
    waiting = {
        (kind, pk): True
        for kind in (Node, Gateway)
        for pk in kind.objects.filter(state=Member.State.PENDING, channel="").values_list("pk", flat=True)
    }
    count = 0
    for (kind, pk), seconds in _pending.ages(waiting).items():
        if seconds > PENDING_S:
            count += kind.objects.filter(pk=pk, state=Member.State.PENDING, channel="").delete()[0]
    return count


def _give_back_pages() -> None:
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        # As a script, since execute() runs one step only, which is one page.
        connection.connection.executescript(f"PRAGMA incremental_vacuum({PAGES})")
