"""Making entries, and deleting old ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from registry import clock
from registry.audit import origins
from registry.audit.entries import AuditEntry

#: entries kept at most, however young
MAX_ENTRIES = 200_000
#: seconds without a step of the wall clock before entries are deleted by their age: it may be years ahead for a while
SETTLED_S = 86_400.0

_settled = clock.Settled()


def record(
    action: str, kind: str, ref: str, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None
) -> AuditEntry:
    """Record a change as the present origin's, with the present transaction."""
    actor, way, address = origins.origin()
    return AuditEntry.objects.create(
        actor=actor,
        origin=way[:120],
        address=address[:45],
        action=action,
        kind=kind,
        ref=str(ref)[:150],
        before=before or {},
        after=after or {},
    )


def prune() -> int:
    """Delete old entries, and return how many went.

    They are older than ``NEREUS_AUDIT_DAYS`` by a clock that has not been set for :data:`SETTLED_S`, or beyond
    :data:`MAX_ENTRIES`.
    """
    gone = 0
    if _settled.seconds() >= SETTLED_S:
        oldest = timezone.now() - timedelta(days=settings.NEREUS.audit_days)
        gone, _ = AuditEntry.objects.filter(at__lt=oldest).delete()
    first = AuditEntry.objects.order_by("-id").values_list("id", flat=True)[MAX_ENTRIES : MAX_ENTRIES + 1]
    if first:
        gone += AuditEntry.objects.filter(id__lte=first[0]).delete()[0]
    return gone
