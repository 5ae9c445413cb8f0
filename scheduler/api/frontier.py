"""An application's frontier, and what another SLO means, over REST."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from registry.api.views.base import View
from scheduler import frontier
from scheduler.promises.changes import LONGEST_SLO_MS, SHORTEST_SLO_MS


class FrontierPointSerializer(serializers.Serializer):
    variant = serializers.CharField()
    device_type = serializers.CharField()
    accuracy = serializers.FloatField(help_text="Percent of the application's best variant.")
    rate = serializers.FloatField(help_text="Items/s a device that plans count on; 0: it is too slow for the SLO.")
    batch = serializers.IntegerField(allow_null=True)
    fastest_ms = serializers.FloatField(help_text="p95 of its fastest batch.")
    dominated = serializers.BooleanField(
        help_text="Another variant is at least as accurate and as fast here, and better in one."
    )
    share = serializers.FloatField(help_text="Part of the planned items that it answers on this type, 0 to 1.")


class SloSerializer(serializers.Serializer):
    """Consequences of another SLO for plans."""

    slo_ms = serializers.FloatField()
    now_ms = serializers.FloatField()
    consequences = serializers.ListField(child=serializers.CharField())


class ApplicationFrontier(View):
    serializer_class = FrontierPointSerializer

    @extend_schema(operation_id="applications_frontier", responses=FrontierPointSerializer(many=True))
    def get(self, request, name):
        """List variants of the frontier by device type, the most accurate first."""
        return self.listed(frontier.frontier(self.application()), FrontierPointSerializer)


class ApplicationSlo(View):
    serializer_class = SloSerializer

    @extend_schema(
        operation_id="applications_slo",
        parameters=[OpenApiParameter("ms", float, required=True, description="The SLO to look at.")],
    )
    def get(self, request, name):
        """Preview the consequences of another SLO, from profiles alone.

        Nothing is changed.
        """
        application = self.application()
        try:
            wanted = float(request.query_params.get("ms", ""))
        except ValueError:
            wanted = 0.0
        if not SHORTEST_SLO_MS <= wanted <= LONGEST_SLO_MS:
            raise ValidationError({"ms": [f"must be a number from {SHORTEST_SLO_MS:g} to {LONGEST_SLO_MS:g}"]})
        said = frontier.consequences(application, wanted)
        return Response(SloSerializer({"slo_ms": wanted, "now_ms": application.slo_ms, "consequences": said}).data)
