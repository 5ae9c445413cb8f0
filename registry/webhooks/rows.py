"""The table of webhooks."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from django.conf import settings
from django.db import models

from registry.audit.tracking import AuditedQuerySet
from registry.models import name_validator

#: webhooks of an appliance
MOST = 20


def _salt() -> str:
    return secrets.token_hex(16)


class Webhook(models.Model):
    class Event(models.TextChoices):
        REPAIR = "repair", "a repair needs a person"
        REPAIR_OVER = "repair_over", "a repair is over"
        PLAN = "plan", "a plan moved variants or leaves demand out"

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    url = models.CharField(max_length=500)
    #: names of events
    events = models.JSONField(default=list)
    enabled = models.BooleanField(default=True)
    #: the secret follows from this and from the secret key, so that a copy of the database does not have it
    salt = models.CharField(max_length=32, default=_salt, editable=False)
    created = models.DateTimeField(auto_now_add=True)
    #: the latest delivery: when, HTTP's status (None: no answer), why it failed (empty: it did not), and how many have
    #: failed in a row
    tried = models.DateTimeField(null=True, blank=True, editable=False)
    status = models.PositiveIntegerField(null=True, blank=True, editable=False)
    error = models.CharField(max_length=300, blank=True, default="", editable=False)
    failures = models.PositiveIntegerField(default=0, editable=False)

    objects = AuditedQuerySet.as_manager()

    class Meta:
        app_label = "registry"
        ordering = ["name"]

    @property
    def secret(self) -> str:
        return hmac.new(settings.SECRET_KEY.encode(), f"webhook {self.salt}".encode(), hashlib.sha256).hexdigest()
