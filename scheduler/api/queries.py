"""Single queries over REST."""

from __future__ import annotations

from datetime import UTC, datetime

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from registry.api.views.base import View
from scheduler import samples


class QuerySampleSerializer(serializers.Serializer):
    """One query, and where its time went."""

    at = serializers.DateTimeField(help_text="The second in which it ended.")
    outcome = serializers.ChoiceField(choices=["in_time", "late", "dropped", "failed"])
    why = serializers.CharField(help_text="Why it was late, refused or slow.")
    latency_ms = serializers.FloatField(help_text="From its arrival at the gateway to its answer.")
    budget_ms = serializers.FloatField(help_text="The time that it had: the SLO, or less where its client asked so.")
    queue_ms = serializers.FloatField()
    network_ms = serializers.FloatField()
    batch_ms = serializers.FloatField()
    model_ms = serializers.FloatField()
    rows = serializers.IntegerField()
    batch_rows = serializers.IntegerField()
    variant = serializers.CharField(help_text="Empty: nobody answered.")
    device = serializers.CharField()
    tries = serializers.IntegerField(help_text="How often it was sent to a device.")


class QuerySamplesSerializer(serializers.Serializer):
    """Samples of the last hour: a gateway reports one of each kind a second."""

    slowest = QuerySampleSerializer(many=True, help_text="The slowest that were answered, first.")
    refused = QuerySampleSerializer(many=True, help_text="Those that were not, the latest first.")


class ApplicationQueries(View):
    serializer_class = QuerySamplesSerializer

    @extend_schema(operation_id="applications_queries")
    def get(self, request, name):
        """List the slowest and the refused queries of the last hour."""
        found = samples.last_hour(self.application().name)
        for some in found.values():
            for one in some:
                one["at"] = datetime.fromtimestamp(one["t"], UTC)
        return Response(QuerySamplesSerializer(found).data)
