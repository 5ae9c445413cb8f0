"""Audit entries as JSON."""

from __future__ import annotations

from rest_framework import serializers

from registry import models


class AuditEntrySerializer(serializers.ModelSerializer):
    """One change."""

    class Meta:
        model = models.AuditEntry
        fields = ["id", "at", "actor", "origin", "address", "action", "kind", "ref", "before", "after"]
