"""Nodes and gateways, which join the control plane as members, and devices."""

from __future__ import annotations

from django.db import models

from registry import clock
from registry.audit.tracking import AuditedQuerySet
from registry.authority import Certified
from registry.models.credentials import JoinToken
from registry.models.names import name_validator

#: seconds without a message after which an approved member is not connected, whatever its row says
FRESH_S = 10


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
        """Whether it has a live connection: a killed web process leaves its channel."""
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
        """Whether it is connected, but late to take over what it was sent."""
        return self.behind_since is not None and self.state == self.State.APPROVED and self.connected


def _fresh(seen_s: float | None) -> bool:
    return seen_s is not None and 0 <= clock.steady() - seen_s < FRESH_S


class Node(Member):
    word = "node"

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
        """Whether it is cordoned and no query is left on its devices."""
        held = (device.warm for device in self.devices.all() if device.state != Device.State.DOWN)
        return self.cordoned_at is not None and not any(held)


class Gateway(Member):
    """A gateway process; ``core_address`` is for members on other boxes."""

    word = "gateway"

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
        """Phases while the cores of a node become other devices."""

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
