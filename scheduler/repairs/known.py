"""Since when repairs have been seen, and which of them operators ignore.

Upkeep keeps rows of this current, as it looks every few seconds. Where it did not see a repair at one look and saw it
at the next, it knows when that began. Repairs that it sees at its first look after a start may have begun before.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from django.utils import timezone

from registry import clock
from registry.audit.recording import record
from registry.errors import Conflict
from scheduler import webhooks
from scheduler.models import KnownRepair
from scheduler.repairs.repair import Repair
from workers import log

logger = log.get("repairs")

#: seconds between two looks within which the later one shows when something began
WITNESSED_S = 60.0

#: repairs that this process has seen without a break at its own looks
_here = clock.Unchanged()
_looked_at: float | None = None


def shown(found: Iterable[Repair]) -> list[Repair]:
    """Repairs that have lasted for long enough, with ``since`` and who ignores them."""
    found = list(found)
    rows = {row.key: row for row in KnownRepair.objects.all()}
    ages = _here.ages({repair.key: True for repair in found})
    return [_dated(each, rows.get(each.key), ages[each.key]) for each in found if _lasted(each, rows, ages)]


def _lasted(repair: Repair, rows: dict[str, KnownRepair], ages: dict[str, float]) -> bool:
    row = rows.get(repair.key)
    if row is not None and row.raised:
        return True
    # A stamp of an earlier boot has an infinite age.
    return max(ages[repair.key], clock.age(row.stamp) if row is not None else 0.0) >= repair.lasting_s


def _dated(repair: Repair, row: KnownRepair | None, age_s: float) -> Repair:
    if repair.since is None:
        since = row.since if row is not None else timezone.now() - timedelta(seconds=age_s)
        repair = replace(repair, since=since, at_least=row is None or not row.witnessed)
    if row is not None and row.ignored and row.ignored == repair.fingerprint:
        repair = replace(repair, ignored_by=row.ignored_by)
    return repair


def remember(found: Iterable[Repair], complete: bool) -> None:
    """Keep the rows current: called by upkeep alone.

    Args:
        complete: whether all facts could be read; without them nothing is taken for over.
    """
    global _looked_at
    now, before = clock.steady(), _looked_at
    _looked_at = now
    witnessed = before is not None and now - before < WITNESSED_S
    present = {repair.key: repair for repair in found}
    rows = {row.key: row for row in KnownRepair.objects.all()}
    for key in present.keys() - rows.keys():
        fields = {"since": timezone.now(), "stamp": clock.stamp(), "witnessed": witnessed}
        rows[key], _ = KnownRepair.objects.get_or_create(key=key, defaults=fields)
    ages = _here.ages(dict.fromkeys(present, True))
    for key, repair in present.items():
        # Repairs that have not lasted are neither shown nor announced.
        if not rows[key].raised and _lasted(repair, rows, ages):
            KnownRepair.objects.filter(key=key).update(raised=True)
            logger.warning("repair", key=key, title=repair.title)
            webhooks.announce("repair", functools.partial(_event, repair))
    over = rows.keys() - present.keys() if complete else set()
    KnownRepair.objects.filter(key__in=over).delete()
    announced = sorted(key for key in over if rows[key].raised)
    if announced:
        logger.info("repairs_over", keys=announced)
    for key in announced:
        webhooks.announce("repair_over", functools.partial(dict, key=key))


def _event(repair: Repair) -> dict[str, str]:
    event = {"key": repair.key, "severity": str(repair.severity), "title": repair.title, "effect": repair.effect}
    return {**event, "application": repair.application}


def ignore(repair: Repair, by: str) -> None:
    """Hide a repair until it changes or comes again; Conflict: it cannot be ignored."""
    if not repair.ignorable:
        raise Conflict(f"{repair.title}: this cannot be ignored")
    KnownRepair.objects.get_or_create(
        key=repair.key, defaults={"since": repair.since, "stamp": clock.stamp(), "raised": True}
    )
    ignored = {"ignored": repair.fingerprint, "ignored_by": by[:150]}
    if KnownRepair.objects.filter(key=repair.key).exclude(**ignored).update(**ignored):
        record("ignored", "repair", repair.key, after={"title": repair.title})


def notice(repair: Repair) -> None:
    if KnownRepair.objects.filter(key=repair.key).exclude(ignored="").update(ignored="", ignored_by=""):
        record("shown again", "repair", repair.key, after={"title": repair.title})
