"""The audit log."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers

from registry.api.views.base import Resource
from registry.audit.entries import AuditEntry
from registry.audit.search import FILTERS, search

_PARAMETERS = [OpenApiParameter(name, str, description=text) for name, text in FILTERS.items()]


class AuditEntrySerializer(serializers.ModelSerializer):
    class Meta:
        model = AuditEntry
        fields = ["id", "at", "actor", "origin", "address", "action", "kind", "ref", "before", "after"]


@extend_schema_view(list=extend_schema(parameters=_PARAMETERS))
class Audit(Resource):
    """Changes, the latest first."""

    serializer_class = AuditEntrySerializer

    def get_queryset(self):
        return search(self.request.query_params)
