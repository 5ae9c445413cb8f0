"""The audit log."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers

from registry.api.views.base import View
from registry.audit.entries import AuditEntry
from registry.audit.search import FILTERS, search

_PARAMETERS = [OpenApiParameter(name, str, description=text) for name, text in FILTERS.items()]


class AuditEntrySerializer(serializers.ModelSerializer):
    """One change."""

    class Meta:
        model = AuditEntry
        fields = ["id", "at", "actor", "origin", "address", "action", "kind", "ref", "before", "after"]


class AuditList(View):
    """Changes, the latest first."""

    serializer_class = AuditEntrySerializer

    @extend_schema(operation_id="audit_list", parameters=_PARAMETERS, responses=AuditEntrySerializer(many=True))
    def get(self, request):
        return self.listed(search(request.query_params), AuditEntrySerializer)
