"""Join tokens, API keys and API tokens; of each only the hash is kept."""

from __future__ import annotations

import hashlib

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from registry.access.roles import BY_LABEL
from registry.audit.tracking import AuditedQuerySet
from registry.models.names import name_validator


def hash_secret(secret: str) -> str:
    """SHA-256 in hex: secrets are long and random, a slow hash costs queries."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Expiring(models.Model):
    """Base of secrets that may expire; without a time they never do."""

    expires = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def expired(self) -> bool:
        return self.expires is not None and self.expires <= timezone.now()


class JoinToken(Expiring):
    """Admits new nodes and gateways; ``auto_approve`` ones need no operator."""

    class Kind(models.TextChoices):
        ANY = "any", "nodes and gateways"
        NODE = "node", "nodes"
        GATEWAY = "gateway", "gateways"

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    token_hash = models.CharField(max_length=64, unique=True)
    auto_approve = models.BooleanField(default=False)
    kind = models.CharField(max_length=7, choices=Kind.choices, default=Kind.ANY)
    #: members that it may admit, null: any number; and that it has admitted
    uses = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(1_000_000)]
    )
    used = models.PositiveIntegerField(default=0, editable=False)
    #: made by a start for the members of its own box; of no use from elsewhere
    own_box = models.BooleanField(default=False, editable=False)
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    @property
    def used_up(self) -> bool:
        return self.uses is not None and self.used >= self.uses


class ApiKey(Expiring):
    """A client's right to send queries; ``prefix`` identifies it to operators."""

    #: what operators limit it by
    LIMITS = ("applications", "rate", "burst", "share", "expires")

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    prefix = models.CharField(max_length=8)
    key_hash = models.CharField(max_length=64, unique=True)
    #: names of the applications that it reaches; null: all. A name stays when its application goes
    applications = models.JSONField(null=True, blank=True, default=None)
    #: queries/s, and the burst size in queries; null: no limit
    rate = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0.001), MaxValueValidator(1e6)])
    burst = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(1_000_000)]
    )
    #: part of an application's capacity that it gets at most while the application refuses queries; null: no limit
    share = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0.001), MaxValueValidator(1)])
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        verbose_name = "API key"


class ApiToken(Expiring):
    """A program's right to use REST; ``role`` narrows the account's role."""

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    role = models.CharField(max_length=11, choices=[(label, label) for label in BY_LABEL])
    prefix = models.CharField(max_length=8)
    token_hash = models.CharField(max_length=64, unique=True)
    last_used = models.DateTimeField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        verbose_name = "API token"
        ordering = ["name"]
