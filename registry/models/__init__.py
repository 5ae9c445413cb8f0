"""The registry's tables.

Further ones: :mod:`registry.audit.entries`, :mod:`registry.webhooks.rows`. State fields change only by conditional
updates (``filter(state=old).update(state=new)``), because web workers, Celery tasks and member connections all write
here.
"""

from registry.audit.entries import AuditEntry
from registry.models.applications import Application, ValidationSet, Variant
from registry.models.credentials import ApiKey, ApiToken, JoinToken, hash_secret
from registry.models.members import FRESH_S, Device, Gateway, Member, Node
from registry.models.names import name_validator
from registry.models.profiles import Fault, Profile, ProfileJob, ProfileLatency

__all__ = [
    "FRESH_S",
    "ApiKey",
    "ApiToken",
    "Application",
    "AuditEntry",
    "Device",
    "Fault",
    "Gateway",
    "JoinToken",
    "Member",
    "Node",
    "Profile",
    "ProfileJob",
    "ProfileLatency",
    "ValidationSet",
    "Variant",
    "hash_secret",
    "name_validator",
]
