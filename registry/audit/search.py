"""Finding entries by object, account, action and time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from registry.audit.entries import AuditEntry
from registry.audit.signing import LOCKED_OUT, SIGNED_IN, SIGNED_OUT
from registry.errors import invalid

#: value of the filter ``only``
PEOPLE = "people"
_SIGNING = (SIGNED_IN, SIGNED_OUT, LOCKED_OUT)
#: query parameters, and what they mean
FILTERS = {
    "kind": "Only objects of this kind, such as application, variant, api_key, account.",
    "ref": "Only objects whose name contains this.",
    "actor": "Only changes by this account.",
    "action": "Only changes of this name, such as created, changed, deleted, signed in.",
    "since": "Only from this time on (ISO 8601, UTC if it names no zone).",
    "until": "Only before this time.",
    "only": "people: neither the appliance's own changes nor its members', and no sign-ins.",
}


def search(wanted: Mapping[str, str]) -> QuerySet[AuditEntry]:
    found = AuditEntry.objects.all()
    lookups = {"kind": "kind", "ref": "ref__icontains", "actor": "actor", "action": "action"}
    for name, lookup in lookups.items():
        if wanted.get(name):
            found = found.filter(**{lookup: wanted[name][:150]})
    if wanted.get("only"):
        if wanted["only"] != PEOPLE:
            raise invalid("only", f"{wanted['only'][:40]!r} must be {PEOPLE!r}, or be left out")
        # Names of accounts have no spaces, and those of members have: ``node box``.
        found = found.exclude(actor="system").exclude(actor__contains=" ").exclude(action__in=_SIGNING)
    for name, lookup in {"since": "at__gte", "until": "at__lt"}.items():
        if wanted.get(name):
            found = found.filter(**{lookup: moment(name, wanted[name])})
    return found


def choices() -> dict[str, list[str]]:
    names = ("kind", "actor", "action")
    rows = set(AuditEntry.objects.order_by().values_list(*names).distinct())
    return {name: sorted({row[at] for row in rows}) for at, name in enumerate(names)}


def moment(name: str, text: str) -> datetime:
    try:
        parsed = parse_datetime(text) or parse_datetime(f"{text}T00:00")
        if parsed is not None:
            # Here, since one whose time in UTC is of the year 0 or 10000 would overflow wherever it is used.
            return parsed.astimezone(UTC) if timezone.is_aware(parsed) else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    raise invalid(name, f"{text[:40]!r} is no date or time such as 2030-01-31 or 2030-01-31T12:00")
