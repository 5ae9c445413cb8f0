"""The appliance's registry: applications, variants, validation sets, nodes, gateways, devices, profiles, keys.

State fields change only by conditional updates (``filter(state=old).update(state=new)``), because web workers, Celery
tasks and member connections all write here.
"""

from __future__ import annotations

import hashlib
import secrets

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils import timezone

from registry import clock
from registry.access.roles import BY_LABEL
from registry.audit.entries import AuditEntry as AuditEntry
from registry.audit.tracking import AuditedQuerySet
from registry.authority import Certified

name_validator = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z",
    "must be 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit",
)


#: seconds without a message after which an approved member is not connected, whatever its row says
FRESH_S = 10


def hash_secret(secret: str) -> str:
    """SHA-256 (hex). Secrets here are long and random, so a slow hash would only burden the query path."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_secret() -> str:
    """256 random bits, URL-safe."""
    return secrets.token_urlsafe(32)


class Application(models.Model):
    """A query type: one signature and one SLO. Clients address it by name."""

    class Late(models.TextChoices):
        SHED = "shed", "refuse what cannot be in time"
        SERVE = "serve", "answer late"

    class State(models.TextChoices):
        ACTIVE = "active"
        DRAINING = "draining"

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    description = models.TextField(blank=True, default="")
    #: an operator's own name for applications that belong together; the console folds them by it. Empty: none
    group = models.CharField(max_length=63, blank=True, default="")
    slo_ms = models.FloatField(validators=[MinValueValidator(1), MaxValueValidator(600_000)])
    late = models.CharField(max_length=5, choices=Late.choices, default=Late.SHED)
    #: {"inputs": [{"name", "datatype", "shape"}], "outputs": [...]}, batch dimension first (-1)
    signature = models.JSONField()
    #: inputs whose open dimensions are filled up to the longest of a batch: {input: value}
    padding = models.JSONField(default=dict, blank=True)
    #: sizes of open dimensions to count on, ascending: the size classes; larger queries are refused. Empty: any size
    sizes = models.JSONField(default=list, blank=True)
    #: worth of one answer beside other applications' answers, where not all demand can be served
    weight = models.FloatField(default=1.0, validators=[MinValueValidator(0.001), MaxValueValidator(1000)])
    #: share of the demand that is served before anything beyond other applications' floors is
    floor = models.FloatField(default=0.0, validators=[MinValueValidator(0), MaxValueValidator(1)])
    state = models.CharField(max_length=8, choices=State.choices, default=State.ACTIVE)
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ValidationSet(models.Model):
    """An ``.npz`` whose arrays are the application's inputs and ``labels``; measures variants' accuracy."""

    application = models.OneToOneField(Application, on_delete=models.CASCADE, related_name="validation_set")
    digest = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField()
    metric = models.CharField(max_length=40)
    rows = models.PositiveIntegerField()
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.application} ({self.metric}, {self.rows} rows)"


class Variant(models.Model):
    """One ONNX model that can serve an application."""

    class State(models.TextChoices):
        PROFILING = "profiling", "waiting for or in its first profile"
        LOADING = "loading", "profiled; no gateway answers for its application yet"
        READY = "ready", "profiled, and its application answers queries"
        FAILED = "failed", "could not be profiled or measured"
        DRAINING = "draining", "leaving the plan, then deleted"

    #: states in which plans count on a variant
    PLANNED = (State.LOADING, State.READY)

    class Source(models.TextChoices):
        DECLARED = "declared"
        MEASURED = "measured"

    application = models.ForeignKey(Application, on_delete=models.CASCADE, related_name="variants")
    name = models.CharField(max_length=63, validators=[name_validator])
    digest = models.CharField(max_length=64, db_index=True)
    size_bytes = models.BigIntegerField()
    accuracy = models.FloatField(null=True, blank=True)
    accuracy_source = models.CharField(max_length=8, choices=Source.choices, default=Source.DECLARED)
    opset = models.PositiveIntegerField(default=0)
    inspection = models.JSONField(default=dict, blank=True)
    state = models.CharField(max_length=9, choices=State.choices, default=State.PROFILING)
    detail = models.TextField(blank=True, default="")
    #: operator preferences: resident on one device at least, wherever that is possible; or never planned
    pinned = models.BooleanField(default=False)
    excluded = models.BooleanField(default=False)
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        ordering = ["application__name", "name"]
        constraints = [
            models.UniqueConstraint(fields=["application", "name"], name="variant_name_once"),
            models.CheckConstraint(
                condition=models.Q(pinned=False) | models.Q(excluded=False), name="variant_pinned_or_excluded"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.application.name}/{self.name}"


class JoinToken(models.Model):
    """Admits new nodes and gateways; ``auto_approve`` ones need no operator."""

    class Kind(models.TextChoices):
        ANY = "any", "nodes and gateways"
        NODE = "node", "nodes"
        GATEWAY = "gateway", "gateways"

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    token_hash = models.CharField(max_length=64, unique=True)
    auto_approve = models.BooleanField(default=False)
    kind = models.CharField(max_length=7, choices=Kind.choices, default=Kind.ANY)
    expires = models.DateTimeField(null=True, blank=True)
    #: members that it may admit, null: any number; and that it has admitted
    uses = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(1_000_000)]
    )
    used = models.PositiveIntegerField(default=0, editable=False)
    #: made by a start for the members of its own box; of no use from elsewhere
    own_box = models.BooleanField(default=False, editable=False)
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    def __str__(self) -> str:
        return self.name

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self.expires is not None and self.expires <= timezone.now()

    @property
    def used_up(self) -> bool:
        """Whether it has admitted as many members as it may."""
        return self.uses is not None and self.used >= self.uses


class Member(Certified):
    """A process that joins the control plane over a websocket with its own credential."""

    class State(models.TextChoices):
        PENDING = "pending", "waits for approval"
        APPROVED = "approved"
        REVOKED = "revoked"

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    state = models.CharField(max_length=8, choices=State.choices, default=State.PENDING)
    credential_hash = models.CharField(max_length=64, blank=True, default="", db_index=True)
    #: the live connection's channel; empty when not connected
    channel = models.CharField(max_length=200, blank=True, default="")
    last_seen = models.DateTimeField(null=True, blank=True)
    #: the same on the steady clock, for comparing; None: not since the appliance started
    seen_s = models.FloatField(null=True, editable=False)
    #: since when the connected member has held another configuration than it should; set once that has lasted
    behind_since = models.DateTimeField(null=True, blank=True)
    #: the box on which it runs (:mod:`workers.machine`); empty: not reported
    machine = models.CharField(max_length=64, blank=True, default="")
    #: release of its code; empty: not reported
    release = models.CharField(max_length=40, blank=True, default="")
    #: how its latest connection ended; empty: it has one, or none ended yet
    last_words = models.CharField(max_length=300, blank=True, default="")
    #: until it has shown the credential that it got for it
    joined_with = models.ForeignKey(JoinToken, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    #: a claim on its name that waits for an operator: the claimant's channel, token, address, since when, and when it
    #: was last there on the steady clock. Without a channel: the latest claim
    claim_channel = models.CharField(max_length=200, blank=True, default="")
    claim_with = models.ForeignKey(JoinToken, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    claim_address = models.CharField(max_length=45, blank=True, default="")
    claimed_at = models.DateTimeField(null=True, blank=True)
    claim_s = models.FloatField(null=True, editable=False)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def connected(self) -> bool:
        """Whether it has a live connection. Approved members send messages every few seconds; a connection that ended
        without closing (web was killed) leaves its channel behind."""
        if not self.channel or self.state != self.State.APPROVED:
            return bool(self.channel)
        return self.fresh

    @property
    def fresh(self) -> bool:
        """Whether it sent a message within :data:`FRESH_S`."""
        return _fresh(self.seen_s)

    @property
    def claimed(self) -> bool:
        """Whether somebody with a join token waits to become this member."""
        return bool(self.claim_channel) and _fresh(self.claim_s)

    @property
    def behind(self) -> bool:
        """Whether it is connected, and has not taken over what it was sent for longer than an operator should wait."""
        return self.behind_since is not None and self.state == self.State.APPROVED and self.connected


def _fresh(seen_s: float | None) -> bool:
    return seen_s is not None and 0 <= clock.steady() - seen_s < FRESH_S


class Node(Member):
    """A box with a node daemon."""

    #: since when plans leave its devices out, by an operator's order; None: they do not
    cordoned_at = models.DateTimeField(null=True, blank=True)
    #: when that order ends by itself; None: only an operator ends it
    cordoned_until = models.DateTimeField(null=True, blank=True)
    #: how its cores become devices, by an operator's order; empty: as the box's settings say
    cpu_devices = models.CharField(max_length=200, blank=True, default="")
    #: its last report on that: ``cores``, ``divided``, ``ordered`` and ``problem`` as in ``JoinNode``; empty: none
    division = models.JSONField(default=dict, editable=False)

    objects = AuditedQuerySet.as_manager()

    @property
    def drained(self) -> bool:
        """Whether it is cordoned and its devices have unloaded all variants, so that no query is left on them."""
        held = (device.warm for device in self.devices.all() if device.state != Device.State.DOWN)
        return self.cordoned_at is not None and not any(held)


class Gateway(Member):
    """A gateway process; ``address`` is where clients reach it, ``core_address`` where members on other boxes reach its
    core."""

    address = models.CharField(max_length=200, blank=True, default="")
    core_address = models.CharField(max_length=200, blank=True, default="")
    #: the devices that its core last reported to reach or not (:mod:`registry.reach`); None: it does not report that
    reach = models.JSONField(null=True, editable=False)

    objects = AuditedQuerySet.as_manager()


class Device(models.Model):
    """A GPU or a set of CPU cores, owned by one executor."""

    class State(models.TextChoices):
        STARTING = "starting"
        UP = "up"
        DRAINING = "draining"
        DOWN = "down"

    class Phase(models.TextChoices):
        """Where the node's cores become other devices (:mod:`scheduler.control.redivision`)."""

        KEPT = ""
        COMING = "coming"
        RETIRING = "retiring"
        RETIRED = "retired"

    #: phases in which plans leave it out
    LEFT_OUT = (Phase.COMING, Phase.RETIRED)
    #: states in which it serves, or is about to again
    SERVING = (State.UP, State.DRAINING)
    #: the detail of a device that its node reported once and has no more
    GONE = "its node no longer has it"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="devices")
    #: cluster-wide name, NODE/cpu0
    ref = models.CharField(max_length=120, unique=True)
    kind = models.CharField(max_length=8)
    type = models.CharField(max_length=120, db_index=True)
    description = models.CharField(max_length=200, blank=True, default="")
    cores = models.JSONField(default=list)
    memory_bytes = models.BigIntegerField(default=0)
    endpoint = models.CharField(max_length=200, blank=True, default="")
    address = models.CharField(max_length=200, blank=True, default="")
    state = models.CharField(max_length=8, choices=State.choices, default=State.DOWN)
    detail = models.TextField(blank=True, default="")
    #: ids of variants that could run now, and the version of the plan that the device follows
    warm = models.JSONField(default=list)
    plan_version = models.PositiveBigIntegerField(default=0)
    #: when it began to serve, or ceased to
    changed = models.DateTimeField(auto_now=True)
    #: the same on the steady clock; None: before that was stored
    serving_s = models.FloatField(null=True, editable=False)
    phase = models.CharField(max_length=8, choices=Phase.choices, blank=True, default="")
    #: since when plans leave it out, as no gateway's core reaches it; None: they do not
    unreached_since = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["ref"]

    def __str__(self) -> str:
        return self.ref


class ProfileJob(models.Model):
    """One order to measure a variant on a device type, and how it went."""

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    class Reason(models.TextChoices):
        REGISTRATION = "registration"
        DEMAND = "demand", "asked for"
        DRIFT = "drift"
        NEW_TYPE = "new_type", "new device type"

    variant = models.ForeignKey(Variant, on_delete=models.CASCADE, related_name="profile_jobs")
    device_type = models.CharField(max_length=120)
    device = models.ForeignKey(Device, null=True, blank=True, on_delete=models.SET_NULL)
    reason = models.CharField(max_length=12, choices=Reason.choices, default=Reason.REGISTRATION)
    state = models.CharField(max_length=9, choices=State.choices, default=State.QUEUED)
    phase = models.CharField(max_length=12, blank=True, default="waiting")
    progress = models.FloatField(default=0.0)
    detail = models.TextField(blank=True, default="")
    attempts = models.PositiveIntegerField(default=0)
    created = models.DateTimeField(auto_now_add=True)
    started = models.DateTimeField(null=True, blank=True)
    #: when the device last reported on the job
    heard = models.DateTimeField(null=True, blank=True)
    finished = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["variant", "device_type"],
                condition=models.Q(state__in=["queued", "running"]),
                name="one_open_profile_job",
            ),
            # A device measures one variant at a time.
            models.UniqueConstraint(
                fields=["device"], condition=models.Q(state="running"), name="one_running_profile_job"
            ),
        ]


class Profile(models.Model):
    """Measured facts of one variant on one device type that hold for all batch sizes."""

    variant = models.ForeignKey(Variant, on_delete=models.CASCADE, related_name="profiles")
    device_type = models.CharField(max_length=120)
    load_s = models.FloatField()
    memory_bytes = models.BigIntegerField()
    measured = models.DateTimeField(auto_now=True)
    #: why plans leave the variant out on this device type; empty: they do not
    blocked = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["variant", "device_type"]
        constraints = [models.UniqueConstraint(fields=["variant", "device_type"], name="profile_once")]


class ProfileLatency(models.Model):
    """Latency by (variant, device type, size class, batch size)."""

    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="latencies")
    #: size class of the queries; 0: the largest, so that it holds for queries of any size
    size = models.PositiveIntegerField(default=0)
    batch = models.PositiveIntegerField()
    p50_ms = models.FloatField()
    p95_ms = models.FloatField()
    mean_ms = models.FloatField()
    samples = models.PositiveIntegerField()

    class Meta:
        ordering = ["size", "batch"]
        verbose_name_plural = "profile latencies"
        constraints = [models.UniqueConstraint(fields=["profile", "size", "batch"], name="latency_once")]


class Fault(models.Model):
    """A run that went wrong on a device."""

    class Cause(models.TextChoices):
        CRASHED = "crashed", "the executor crashed"
        STOPPED = "stopped", "the run exceeded its limit and was stopped"

    variant = models.ForeignKey(Variant, on_delete=models.CASCADE, related_name="faults")
    #: by name: a device that is gone stays part of what happened
    device = models.CharField(max_length=120)
    device_type = models.CharField(max_length=120)
    cause = models.CharField(max_length=7, choices=Cause.choices)
    detail = models.TextField(blank=True, default="")
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-id"]


class ApiKey(models.Model):
    """Lets a client send queries, within limits. Only its hash is kept; ``prefix`` identifies it to operators."""

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    prefix = models.CharField(max_length=8)
    key_hash = models.CharField(max_length=64, unique=True)
    #: names of the applications that it reaches; null: all. A name stays when its application goes
    applications = models.JSONField(null=True, blank=True, default=None)
    #: queries/s, and how many may come at once after a pause; null: no limit
    rate = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0.001), MaxValueValidator(1e6)])
    burst = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(1_000_000)]
    )
    #: part of an application's capacity that it gets at most while the application refuses queries; null: no limit
    share = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0.001), MaxValueValidator(1)])
    expires = models.DateTimeField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self.expires is not None and self.expires <= timezone.now()


class ApiToken(models.Model):
    """Lets a program use the REST API as an account. Only its hash is kept; ``role`` narrows the account's role."""

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    role = models.CharField(max_length=11, choices=[(label, label) for label in BY_LABEL])
    prefix = models.CharField(max_length=8)
    token_hash = models.CharField(max_length=64, unique=True)
    expires = models.DateTimeField(null=True, blank=True)
    last_used = models.DateTimeField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        verbose_name = "API token"
        ordering = ["name"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self.expires is not None and self.expires <= timezone.now()
