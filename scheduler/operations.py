"""Operations: work that goes on in the background and takes a while.

The console's drawer *Tasks* shows them: uploads, profiling, solving, simulations, and drains of nodes, variants and
applications; those under way first, then profile jobs that ended within an hour. Everything is read from rows and from
Redis; who asked for it comes from the audit log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Max
from django.utils import timezone
from redis import RedisError

from registry import clock
from registry.audit.entries import AuditEntry
from registry.models import Application, Device, Node, ProfileJob, Variant
from registry.profiling import OPEN
from scheduler import uploads
from scheduler.control import requests
from scheduler.models import Plan, WhatIf

#: for how long ended profile jobs are listed, and how many
ENDED_FOR, ENDED = timedelta(hours=1), 10
#: jobs under way that are listed
MOST = 100
SYSTEM = "Nereus"


@dataclass(frozen=True)
class Operation:
    """As :class:`scheduler.api.operations.OperationSerializer` describes it."""

    key: str
    kind: str
    title: str
    state: str
    by: str
    since: datetime
    until: datetime | None = None
    progress: float | None = None
    detail: str = ""
    cancel: str = ""
    consequence: str = ""
    application: str = ""


def current() -> list[Operation]:
    """All operations, those under way first, each kind by since when."""
    open_ = ProfileJob.objects.filter(state__in=OPEN).order_by("id")
    ended = ProfileJob.objects.filter(finished__gt=timezone.now() - ENDED_FOR).order_by("-finished")
    jobs, done = list(_related(open_)[:MOST]), list(_related(ended)[:ENDED])
    asked = _newest("variant", "profile ordered", {str(job.variant) for job in [*jobs, *done] if _on_demand(job)})
    devices = Device.objects.filter(state=Device.State.UP, node__state=Node.State.APPROVED).order_by()
    up = set(devices.values_list("type", flat=True))
    under_way = [_job(job, asked, up) for job in jobs]
    found = [*_uploads(), *_solving(), *under_way, *_simulations(), *_drains()]
    return sorted(found, key=lambda one: one.since) + [_job(job, asked, up) for job in done]


def _solving() -> Iterator[Operation]:
    row, demand = requests.plan_row(), requests.demand()
    if row.holder and demand is not None:
        by = demand.detail.partition(";")[0].removeprefix("by ") if demand.trigger == Plan.Trigger.MANUAL else SYSTEM
        age_s = clock.age(row.requested.get(demand.trigger))
        since = timezone.now() - timedelta(seconds=age_s if math.isfinite(age_s) else 0.0)
        yield Operation("solving:plan", "solving", "Plan", "running", by, since, detail=demand.detail)


def _uploads() -> Iterator[Operation]:
    under_way = []
    with suppress(RedisError):
        under_way = uploads.current()
    for row in under_way:
        receiving = row["phase"] == "receiving"
        so_far = f"{row['received'] / 2**20:.1f} MiB" + (f" of {row['size'] / 2**20:.1f}" if row["size"] else "")
        yield Operation(
            key=f"upload:{row['key']}",
            kind="upload",
            title=f"{row['application']}/{row['name']}" if row["name"] else f"to {row['application']}",
            state="running",
            by=row["by"],
            since=datetime.fromtimestamp(row["since"], UTC),
            progress=min(1.0, row["received"] / row["size"]) if receiving and row["size"] else None,
            detail=f"received {so_far}" if receiving else f"inspecting {so_far}",
            cancel=f"/api/v1/uploads/{row['key']}/" if receiving else "",
            consequence="Its sender is told, and nothing of it is kept." if receiving else "",
            application=row["application"],
        )


def _related(jobs):
    return jobs.select_related("variant__application", "device")


def _on_demand(job: ProfileJob) -> bool:
    return job.reason == job.Reason.DEMAND


def _job(job: ProfileJob, asked: dict[str, AuditEntry], up: set[str]) -> Operation:
    open_ = job.state in OPEN
    running = job.state == ProfileJob.State.RUNNING
    return Operation(
        key=f"profiling:{job.pk}",
        kind="profiling",
        title=f"{job.variant} on {job.device.ref if job.device else job.device_type}",
        state="running" if running else "waiting" if open_ else job.state,
        by=_by(asked.get(str(job.variant))) if _on_demand(job) else SYSTEM,
        since=job.created,
        until=job.finished,
        progress=job.progress if running else None,
        detail=_job_detail(job, up),
        cancel=f"/api/v1/profile-jobs/{job.pk}/" if open_ else "",
        consequence=(
            f"{job.variant} is not measured on {job.device_type}, and not planned there unless it was measured before. "
            "Re-profile orders it again."
        ),
        application=job.variant.application.name,
    )


def _job_detail(job: ProfileJob, up: set[str]) -> str:
    """Its phase, why it ended, or what it waits for; ``up``: device types that are up."""
    if job.state != ProfileJob.State.QUEUED:
        return job.detail or (job.phase if job.state == ProfileJob.State.RUNNING else job.get_reason_display())
    waits = "until a device of this type is free" if job.device_type in up else "for a device of this type: none is up"
    return f"waits {waits}" + (f"; before: {job.detail}" if job.detail else "")


def _simulations() -> Iterator[Operation]:
    for row in WhatIf.objects.filter(state__in=WhatIf.OPEN).order_by("pk")[:MOST]:
        simulated = row.state == WhatIf.State.SIMULATING and row.progress > 0
        queued = row.state == WhatIf.State.SIMULATING and not simulated
        yield Operation(
            key=f"simulation:{row.pk}",
            kind="simulation",
            title=f"What-if {row.pk}",
            state="running" if simulated or row.state == WhatIf.State.PLANNING else "waiting",
            by=row.by,
            since=row.created,
            progress=row.progress if simulated else None,
            detail="the plan is made, and waits for its simulation" if queued else row.get_state_display(),
            cancel="" if row.state == WhatIf.State.PLANNING else f"/api/v1/what-ifs/{row.pk}/",
            consequence="It gets no promise; whoever asked may ask again.",
        )


def _drains() -> Iterator[Operation]:
    now = timezone.now()
    cordoned = Node.objects.exclude(cordoned_at=None).prefetch_related("devices")
    nodes = [node for node in cordoned if not node.drained]
    asked = _newest("node", "changed", {node.name for node in nodes})
    for node in nodes:
        yield Operation(
            key=f"drain:node {node.name}",
            kind="drain",
            title=f"Node {node.name}",
            state="running",
            by=_by(asked.get(node.name)),
            since=node.cordoned_at,
            detail="until its devices hold nothing",
            cancel=f"/api/v1/nodes/{node.name}/cordon/",
            consequence=f"Plans use the devices of {node.name} again.",
        )
    for kind, draining in (
        ("application", Application.objects.filter(state="draining")),
        ("variant", Variant.objects.filter(state=Variant.State.DRAINING).select_related("application")),
    ):
        rows = list(draining)
        asked = _newest(kind, "changed", {str(row) for row in rows})
        for row in rows:
            entry = asked.get(str(row))
            yield Operation(
                key=f"drain:{kind} {row}",
                kind="drain",
                title=f"{kind.capitalize()} {row}",
                state="running",
                by=entry.actor if entry else SYSTEM,
                since=entry.at if entry else now,
                detail="until no device holds it; then it is deleted",
                application=row.name if kind == "application" else row.application.name,
            )


def _newest(kind: str, action: str, refs: set[str]) -> dict[str, AuditEntry]:
    if not refs:
        return {}
    found = AuditEntry.objects.filter(kind=kind, action=action, ref__in=refs).order_by()
    newest = found.values("ref").annotate(newest=Max("pk")).values_list("newest", flat=True)
    return {entry.ref: entry for entry in AuditEntry.objects.filter(pk__in=list(newest))}


def _by(entry: AuditEntry | None) -> str:
    return SYSTEM if entry is None or entry.actor == "system" else entry.actor
