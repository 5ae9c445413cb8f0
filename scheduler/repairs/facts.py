"""The present as the control plane knows it, read once for all checks."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cryptography import x509
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Max, Min
from django.utils import timezone
from redis.exceptions import RedisError

from appliance import redis_server
from registry import storage
from registry.inspection import sandbox
from registry.models import (
    ApiKey,
    ApiToken,
    Application,
    AuditEntry,
    Device,
    Fault,
    Gateway,
    JoinToken,
    Member,
    Node,
    Profile,
    ProfileJob,
    ValidationSet,
    Variant,
)
from scheduler import telemetry, troubles
from scheduler.allocation.problem import Problem
from scheduler.control import requests
from scheduler.control.assemble import assemble
from scheduler.history import reading
from scheduler.history.folding import APPLICATION, TIERS
from scheduler.models import KnownRepair, Plan, WorkLease
from scheduler.repairs import samples
from workers import log, tls

logger = log.get("repairs")

#: seconds of queries that are looked at by the second; windows of rows tell bursts from what lasts
MINUTE_S, SHORT_S, LONG_S = 60, 300, 900
#: seconds of the shortest time that counts, as long as the console's figures of the present
MOMENT_S = 5


@dataclass(frozen=True)
class RecentQueries:
    """Queries of an application within some time at all gateways.

    Attributes:
        worst: highest share of violations within :data:`MOMENT_S`; 0 where only rows are read.
    """

    arrived: int = 0
    in_time: int = 0
    late: int = 0
    refused: int = 0
    failed: int = 0
    worst: float = 0.0

    @property
    def violations(self) -> int:
        """Queries that were late, refused or failed."""
        return self.late + self.refused + self.failed

    @property
    def share(self) -> float:
        """Share of violations, 0 to 1."""
        return self.violations / max(1, self.arrived, self.in_time + self.violations)


@dataclass(frozen=True)
class Disk:
    """The disk below ``NEREUS_HOME``. ``shrinks``: bytes/s, None where not known."""

    path: Path
    free: int
    total: int
    read_only: bool = False
    shrinks: float | None = None


@dataclass(frozen=True)
class CertificateInUse:
    """The servers' certificate. ``own``: of the appliance's authority."""

    path: Path
    ends: datetime
    own: bool


@dataclass(frozen=True)
class StoredFile:
    """A file of the store that is not as its row says.

    Attributes:
        variant: empty for the application's validation set.
    """

    digest: str
    application: str
    variant: str
    trouble: str


@dataclass(frozen=True)
class Facts:
    """The state as of ``now``; what Redis tells is empty where ``redis`` is False.

    Attributes:
        problem: with all devices of approved nodes, whether they are up or not, and no demand.
        jobs: the newest profile job that was not cancelled, by variant's id and device type.
        mixed: when queries of a variant were first found to influence each other after its upload, by its id.
        crashes: the first crash since it was profiled, by variant's id and device type, of blocked ones.
        plan: the newest, without its problem, inputs and wire form.
        before: the last plan made while a lost device still served, by its ref.
        started: when the first account was made.
        recent: by application, over :data:`MINUTE_S`.
        short, long: by application, over :data:`SHORT_S` and :data:`LONG_S`; as recorded.
        raised: keys of the repairs that were announced and are not over.
    """

    now: datetime
    redis: bool = True
    troubles: list[dict] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    gateways: list[Gateway] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    applications: list[Application] = field(default_factory=list)
    variants: list[Variant] = field(default_factory=list)
    problem: Problem = field(default_factory=lambda: Problem((), (), ()))
    jobs: Mapping[tuple[int, str], ProfileJob] = field(default_factory=dict)
    blocked: list[Profile] = field(default_factory=list)
    mixed: Mapping[int, datetime] = field(default_factory=dict)
    crashes: Mapping[tuple[int, str], datetime] = field(default_factory=dict)
    plan: Plan | None = None
    before: Mapping[str, Plan] = field(default_factory=dict)
    recent: Mapping[str, RecentQueries] = field(default_factory=dict)
    short: Mapping[str, RecentQueries] = field(default_factory=dict)
    long: Mapping[str, RecentQueries] = field(default_factory=dict)
    raised: frozenset[str] = frozenset()
    planning: WorkLease = field(default_factory=WorkLease)
    disk: Disk | None = None
    certificate: CertificateInUse | None = None
    certificate_fault: str = ""
    stored: list[StoredFile] = field(default_factory=list)
    isolation: str = ""
    redis_hole: str = ""
    backup: datetime | None = None
    started: datetime | None = None
    jump: samples.ClockJump | None = None
    api_keys: list[ApiKey] = field(default_factory=list)
    api_tokens: list[ApiToken] = field(default_factory=list)
    join_tokens: list[JoinToken] = field(default_factory=list)

    def serving(self, device: Device) -> bool:
        """Whether the device is there for queries."""
        return device.node.connected and device.state in Device.SERVING

    def usable(self) -> list[Device]:
        """Devices that are there for queries."""
        return [device for device in self.devices if self.serving(device)]


def read() -> Facts:
    """The facts of now.

    Raises:
        DatabaseError: the database does not answer.
    """
    devices = list(Device.objects.filter(node__state=Member.State.APPROVED).select_related("node"))
    variants = list(
        Variant.objects.exclude(state=Variant.State.DRAINING)
        .filter(application__state=Application.State.ACTIVE)
        .select_related("application")
        .prefetch_related("profiles")
    )
    blocked = [profile for variant in variants for profile in variant.profiles.all() if profile.blocked]
    certificate, certificate_fault = _certificate()
    ready, received = _from_redis()
    return Facts(
        now=timezone.now(),
        redis=ready,
        troubles=troubles.current(),
        nodes=list(Node.objects.select_related("claim_with")),
        gateways=list(Gateway.objects.select_related("claim_with")),
        devices=devices,
        applications=list(Application.objects.filter(state=Application.State.ACTIVE)),
        variants=variants,
        problem=assemble({}, devices),
        jobs=_jobs(variants),
        blocked=blocked,
        mixed=_mixed(),
        crashes=_crashes(blocked),
        plan=Plan.objects.defer("problem", "inputs", "wire").first(),
        before=_before(devices),
        planning=requests.plan_row(),
        disk=_disk(received.pop("shrinks", None)),
        certificate=certificate,
        certificate_fault=certificate_fault,
        stored=_stored(variants),
        isolation=sandbox.warning(settings.NEREUS),
        redis_hole=_redis_hole(),
        backup=AuditEntry.objects.filter(kind="backup", action="made").values_list("at", flat=True).first(),
        started=get_user_model().objects.order_by("date_joined").values_list("date_joined", flat=True).first(),
        api_keys=list(ApiKey.objects.exclude(expires=None)),
        api_tokens=list(ApiToken.objects.exclude(expires=None).exclude(last_used=None)),
        join_tokens=list(JoinToken.objects.filter(expires=None, uses=None, own_box=False)),
        raised=frozenset(KnownRepair.objects.filter(raised=True).values_list("key", flat=True)),
        **_recorded(),
        **received,
    )


def _redis_hole() -> str:
    """The hole of the private Redis; a server elsewhere is its operators'."""
    program = None if settings.NEREUS.redis_url else redis_server.chosen()
    return program.hole if program else ""


def _from_redis() -> tuple[bool, dict]:
    """Whether Redis answered, and what it tells."""
    if troubles.pausing(troubles.REDIS):
        return False, {}
    try:
        return True, {
            "recent": _recent(),
            "jump": samples.clock_jump(),
            "shrinks": samples.disk_rate(),
        }
    except (RedisError, OSError) as error:
        troubles.occurred(error)
        return False, {}


#: statistics of queries, in the order of :class:`RecentQueries`
_COUNTED = ("arrived", "in_time", "late", "dropped", "failed")


def _recent() -> dict[str, RecentQueries]:
    found: dict[str, dict[int, list[int]]] = {}
    for second in telemetry.gateway_seconds(MINUTE_S):
        for name, counts in second["applications"].items():
            sums = found.setdefault(name, {}).setdefault(second["t"] // MOMENT_S, [0] * len(_COUNTED))
            for place, counted in enumerate(_COUNTED):
                sums[place] += counts.get(counted, 0)
    recent = {}
    for name, moments in found.items():
        worst = max(RecentQueries(*sums).share for sums in moments.values())
        recent[name] = RecentQueries(*map(sum, zip(*moments.values(), strict=True)), worst=worst)
    return recent


def _recorded() -> dict[str, dict[str, RecentQueries]]:
    rows, columns = reading.recent_rows(LONG_S), [APPLICATION.index(counted) for counted in _COUNTED]
    windows = {}
    for window, seconds in (("short", SHORT_S), ("long", LONG_S)):
        points = seconds // TIERS[0].resolution
        windows[window] = {
            name: RecentQueries(*map(int, sums.values[-points:, columns].sum(axis=0))) for name, sums in rows.items()
        }
    return windows


def _jobs(variants: list[Variant]) -> dict[tuple[int, str], ProfileJob]:
    counted = ProfileJob.objects.exclude(state=ProfileJob.State.CANCELLED).order_by()
    newest = counted.values("variant", "device_type").annotate(newest=Max("pk")).values("newest")
    known = {variant.pk for variant in variants}
    jobs = ProfileJob.objects.filter(pk__in=newest)
    return {(job.variant_id, job.device_type): job for job in jobs if job.variant_id in known}


def _mixed() -> dict[int, datetime]:
    found = Fault.objects.filter(cause=Fault.Cause.MIXED).order_by("variant").values("variant")
    return {one["variant"]: one["first"] for one in found.annotate(first=Min("at"))}


def _crashes(blocked: list[Profile]) -> dict[tuple[int, str], datetime]:
    found = {}
    for profile in blocked:
        crashed = Fault.objects.filter(
            variant=profile.variant_id,
            device_type=profile.device_type,
            cause=Fault.Cause.CRASHED,
            at__gte=profile.measured,
        )
        first = crashed.order_by("id").values_list("at", flat=True).first()
        if first is not None:
            found[profile.variant_id, profile.device_type] = first
    return found


def _before(devices: list[Device]) -> dict[str, Plan]:
    lost = [device for device in devices if device.state not in Device.SERVING]
    plans = Plan.objects.only("accuracy", "demand", "served")
    found = {device.ref: plans.filter(created__lt=device.changed).first() for device in lost}
    return {ref: plan for ref, plan in found.items() if plan is not None}


def _disk(shrinks: float | None) -> Disk:
    home = settings.NEREUS.home
    found = os.statvfs(home)
    read_only = bool(found.f_flag & os.ST_RDONLY)
    return Disk(home, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, read_only, shrinks)


def _certificate() -> tuple[CertificateInUse | None, str]:
    """The certificate in use, if TLS is, and why it cannot be read."""
    nereus = settings.NEREUS
    if not nereus.tls_used:
        return None, ""
    path = nereus.tls_cert or tls.own(nereus).server_file
    try:
        # The server's own comes first in a chain.
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        return None, f"{path}: {error}"
    return CertificateInUse(path, certificate.not_valid_after_utc, nereus.tls_cert is None), ""


def _stored(variants: list[Variant]) -> list[StoredFile]:
    """Files that rows need and that are missing, or of another size."""
    rows = [(variant.digest, variant.size_bytes, variant.application.name, variant.name) for variant in variants]
    rows += [
        (each.digest, each.size_bytes, each.application.name, "")
        for each in ValidationSet.objects.select_related("application")
    ]
    found = []
    for digest, size, application, name in rows:
        if trouble := _trouble(digest, size):
            found.append(StoredFile(digest, application, name, trouble))
    return found


def _trouble(digest: str, size: int) -> str:
    try:
        state = storage.path(digest).stat()
    except (FileNotFoundError, ValueError):
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISREG(state.st_mode) or state.st_size != size:
        return f"is damaged: it has {state.st_size} bytes instead of {size}"
    return ""
