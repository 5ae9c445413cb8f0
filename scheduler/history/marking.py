"""Marks: what happened when, for the time axis of charts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.urls import reverse
from django.utils import timezone

from registry.models import AuditEntry, Fault, Gateway, Member, Node, Variant
from scheduler import live
from scheduler.history.models import Mark
from scheduler.models import Plan
from scheduler.presence import silence_counts
from scheduler.words import several

#: uploads, and faults of a variant, so long after the first of a mark are part of it
TOGETHER, FAULTS_TOGETHER = timedelta(minutes=1), timedelta(hours=1)


def mark(kind: str, text: str, **more: Any) -> Mark:
    made = Mark.objects.create(kind=kind, text=text[:300], **{"at": timezone.now(), **more})
    _show(made)
    return made


def _show(made: Mark) -> None:
    # The mark stands, whether or not browsers learn of it.
    transaction.on_commit(lambda: live.publish("mark", event(made)), robust=True)


def event(made: Mark) -> dict[str, Any]:
    """A mark as browsers and REST read it; ``at``: unix seconds."""
    return {
        "id": made.pk,
        "kind": made.kind,
        "at": made.at.timestamp(),
        "text": made.text,
        "count": made.count,
        "link": made.link,
        "by": made.by,
    }


def planned(plan: Plan) -> None:
    if plan.moves and plan.changed:
        manual = plan.trigger == Plan.Trigger.MANUAL
        why = f"asked for {plan.trigger_detail}" if manual else plan.trigger_detail or plan.get_trigger_display()
        link = reverse("console:plan", kwargs={"version": plan.pk})
        text = f"Plan {plan.pk} loads {several(plan.moves, 'variant')}: {why}"
        mark(Mark.Kind.PLAN, text, subject=f"plan {plan.pk}", link=link)


def uploaded(sender: type[Variant], instance: Variant, created: bool, raw: bool = False, **_: Any) -> None:
    if not created or raw:
        return
    owner = instance.application.name
    link = reverse("console:application", kwargs={"name": owner})
    if not _joined(owner, instance.name):
        mark(Mark.Kind.UPLOAD, f"{owner}/{instance.name} uploaded", subject=f"variant {owner}", link=link)


def faulted(sender: type[Fault], instance: Fault, created: bool, raw: bool = False, **_: Any) -> None:
    """Mark a run that went wrong; those of a variant within an hour are one mark."""
    now, subject = timezone.now(), f"fault of {instance.variant}"
    if not created or raw or Mark.objects.filter(subject=subject, at__gt=now - FAULTS_TOGETHER, at__lte=now).exists():
        return
    link = reverse("console:application", kwargs={"name": instance.variant.application.name})
    mark(Mark.Kind.LOST, f"{instance.variant} on {instance.device}: {instance.detail}", subject=subject, link=link)


def changed(sender: type[AuditEntry], instance: AuditEntry, created: bool, raw: bool = False, **_: Any) -> None:
    if not created or raw:
        return
    for text in _changes(instance):
        subject = f"{instance.kind} {instance.ref}"[:150]
        mark(Mark.Kind.CHANGE, text, subject=subject, link=_place(instance), by=instance.actor)


def _changes(entry: AuditEntry) -> Iterator[str]:
    before, after = entry.before, entry.after
    if entry.kind == "choice":
        was, now = before.get("value", "default"), after.get("value", "default")
        yield f"{entry.ref} changed from {was} to {now}"
    if entry.action != "changed":
        return
    if entry.kind == "application" and "slo_ms" in after:
        yield f"SLO of {entry.ref} changed from {before['slo_ms']:g} to {after['slo_ms']:g} ms"
    if entry.kind == "variant":
        for name in ("pinned", "excluded"):
            if name in after:
                yield f"{entry.ref} {'' if after[name] else 'no longer '}{name}"
    if entry.kind == "node" and "cordoned_at" in after:
        yield f"node {entry.ref} {'cordoned' if after['cordoned_at'] else 'uncordoned'}"


def _place(entry: AuditEntry) -> str:
    if entry.kind in ("application", "variant"):
        return reverse("console:application", kwargs={"name": entry.ref.partition("/")[0]})
    return reverse("console:nodes" if entry.kind == "node" else "console:plans")


def _joined(owner: str, name: str) -> bool:
    now = timezone.now()
    latest = Mark.objects.filter(kind=Mark.Kind.UPLOAD, at__gt=now - TOGETHER, at__lte=now).first()
    if latest is None:
        return False
    one = latest.subject == f"variant {owner}"
    changes = {
        "count": latest.count + 1,
        "text": f"{latest.count + 1} variants of {owner if one else 'several applications'} uploaded, the latest "
        f"{owner}/{name}",
        "subject": latest.subject if one else "variants",
        "link": latest.link if one else reverse("console:applications"),
    }
    # Another process may have counted meanwhile: then this one is marked apart.
    if not Mark.objects.filter(pk=latest.pk, count=latest.count).update(**changes):
        return False
    latest.refresh_from_db()
    _show(latest)
    return True


def watch_members() -> None:
    """Mark members that were lost or are back; called by upkeep."""
    if not silence_counts():
        # The control plane itself was away.
        return
    members = [row for kind in (Node, Gateway) for row in kind.objects.filter(state=Member.State.APPROVED)]
    subjects = {f"{row.word} {row.name}": row for row in members}
    about = Mark.objects.filter(subject__in=subjects, kind__in=[Mark.Kind.LOST, Mark.Kind.BACK])
    latest = about.order_by().values("subject").annotate(newest=Max("pk")).values_list("newest", flat=True)
    lost = {each.subject for each in Mark.objects.filter(pk__in=list(latest)) if each.kind == Mark.Kind.LOST}
    for subject, row in subjects.items():
        if not row.connected and row.last_seen is not None and subject not in lost:
            mark(Mark.Kind.LOST, f"{subject} is not connected", subject=subject, link=reverse("console:nodes"))
        elif row.connected and subject in lost:
            mark(Mark.Kind.BACK, f"{subject} is connected again", subject=subject, link=reverse("console:nodes"))
