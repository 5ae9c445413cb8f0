"""The history and its marks over REST."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers, status
from rest_framework.response import Response

from registry import clock
from registry.api.serializers.fields import StrictMixin
from registry.api.views.base import View
from registry.audit.recording import record
from registry.models import Application, Device
from registry.text import storable
from scheduler.history import marking, reading
from scheduler.history.models import Mark

#: latest moment that a range may touch, unix seconds: the year 9999
LATEST = 253_402_300_799
#: marks of an answer
MOST_MARKS = 500
HOUR_S = 3600


class RangeSerializer(serializers.Serializer):
    begin = serializers.IntegerField(required=False, min_value=0, max_value=LATEST, help_text="Unix seconds.")
    end = serializers.IntegerField(required=False, min_value=1, max_value=LATEST, help_text="Unix seconds; else now.")
    seconds = serializers.IntegerField(
        required=False, min_value=1, max_value=reading.LONGEST_S, help_text="Length where there is no begin; else 3600."
    )
    points = serializers.IntegerField(
        required=False, default=300, min_value=1, max_value=reading.MOST_POINTS, help_text="At most so many."
    )

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        end = fields.get("end") or math.ceil(clock.wall())
        begin = fields.get("begin", max(0, end - fields.get("seconds", HOUR_S)))
        if begin >= end:
            raise serializers.ValidationError({"begin": f"must be before end, which is {end}"})
        if end - begin > reading.LONGEST_S:
            raise serializers.ValidationError({"begin": f"a range has at most {reading.LONGEST_S} seconds"})
        return {"range": reading.Range(begin, end), "points": fields["points"]}


def _column(help_text: str) -> serializers.ListField:
    return serializers.ListField(child=serializers.FloatField(allow_null=True), help_text=help_text)


class GridSerializer(serializers.Serializer):
    """Points of time: point i is of the ``step`` seconds from ``begin + i * step`` on."""

    begin = serializers.IntegerField(help_text="Unix seconds of the first point.")
    step = serializers.IntegerField(help_text="Seconds between two points.")
    points = serializers.IntegerField()
    resolution = serializers.IntegerField(help_text="Seconds of the rows that were read.")
    source = serializers.ChoiceField(choices=["live", "database"])


class FiguresSerializer(serializers.Serializer):
    demand = _column("Queries that arrived, 1/s.")
    throughput = _column("Queries that were answered, 1/s.")
    accuracy = _column("Effective accuracy in percent of the application's best variant.")
    violations = _column("Late, dropped and failed queries in percent of those that ended.")
    p50_ms = _column("Mean of the seconds' medians, weighted by their answers: an estimate.")
    p95_ms = _column("Mean of each second's 95th percentile, weighted by answers: an estimate.")
    p95_ms_highest = _column("95th percentile of the slowest second.")


class SeriesSerializer(GridSerializer, FiguresSerializer):
    """Figures of an application or of the whole cluster; null where nothing is known."""

    by_variant = serializers.DictField(
        child=_column("Answers, 1/s."), help_text="By variant of the application; empty for the whole cluster."
    )


class ApplicationRowSerializer(FiguresSerializer):
    name = serializers.CharField()
    group = serializers.CharField(help_text="Its group; empty: none, or the application was deleted.")
    over = inline_serializer(
        "Over", {name: serializers.FloatField(allow_null=True) for name in FiguresSerializer().fields}
    )


class ApplicationsSerializer(GridSerializer):
    applications = ApplicationRowSerializer(many=True)


class DeviceSeriesSerializer(GridSerializer):
    """Means of a device over its reports; null where there is none."""

    busy = _column("Time that runs batches, percent.")
    profiling = _column("Time that measures variants, percent.")
    queued = _column("Rows that wait on the device.")
    memory_bytes = _column("Memory that its executor takes.")
    celsius = _column("Temperature, where the device tells.")
    watts = _column("Power, where the device tells.")


class MarkSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=Mark.Kind.values)
    at = serializers.FloatField(help_text="Unix seconds.")
    text = serializers.CharField()
    count = serializers.IntegerField(help_text="Uploads within a minute are one mark.")
    link = serializers.CharField(help_text="The page that shows more; empty: none.")
    by = serializers.CharField(help_text="The account whose note or change it is; empty: neither.")


class NoteSerializer(StrictMixin, serializers.Serializer):
    text = serializers.CharField(max_length=300)
    at = serializers.IntegerField(required=False, min_value=0, max_value=LATEST, help_text="Unix seconds; else now.")


_RANGE = [RangeSerializer]


class Ranged(View):
    def asked(self) -> dict[str, Any]:
        parsed = RangeSerializer(data=self.request.query_params)
        parsed.is_valid(raise_exception=True)
        return parsed.validated_data


class ClusterHistory(Ranged):
    serializer_class = SeriesSerializer

    @extend_schema(operation_id="history_cluster", parameters=_RANGE)
    def get(self, request):
        """Read the cluster's history.

        It consists of seconds of the last quarter of an hour, or of rows of 10 s to a day, as the range needs.
        """
        asked = self.asked()
        return Response(reading.series(asked["range"], asked["points"]))


class ApplicationHistory(Ranged):
    serializer_class = SeriesSerializer

    @extend_schema(operation_id="history_application", parameters=_RANGE)
    def get(self, request, name):
        """Read an application's history by variant; deleted ones keep theirs."""
        asked = self.asked()
        if not reading.known("a", name):
            get_object_or_404(Application, name=name)
        return Response(reading.series(asked["range"], asked["points"], name))


class ApplicationsHistory(Ranged):
    serializer_class = ApplicationsSerializer

    @extend_schema(operation_id="history_applications", parameters=_RANGE)
    def get(self, request):
        """By point (at most 120) and over the whole range."""
        asked = self.asked()
        found = reading.applications(asked["range"], min(120, asked["points"]))
        groups = dict(Application.objects.exclude(group="").values_list("name", "group"))
        for row in found["applications"]:
            row["group"] = groups.get(row["name"], "")
        return Response(found)


class DeviceHistory(Ranged):
    serializer_class = DeviceSeriesSerializer

    @extend_schema(operation_id="history_device", parameters=_RANGE)
    def get(self, request, ref):
        """Rows of 10 s to a day."""
        asked = self.asked()
        if not reading.known("d", ref):
            get_object_or_404(Device, ref=ref)
        return Response(reading.device(asked["range"], asked["points"], ref))


class Marks(Ranged):
    serializer_class = MarkSerializer
    pagination_class = None

    @extend_schema(operation_id="marks_list", parameters=_RANGE, responses=MarkSerializer(many=True))
    def get(self, request):
        """List marks of a range, newest first, at most 500."""
        begin, end = (datetime.fromtimestamp(at, UTC) for at in self.asked()["range"])
        found = Mark.objects.filter(at__gte=begin, at__lte=end)[:MOST_MARKS]
        return Response(MarkSerializer([marking.event(each) for each in found], many=True).data)

    @extend_schema(operation_id="marks_create", request=NoteSerializer, responses={201: MarkSerializer})
    def post(self, request):
        """Write a note."""
        fields = self.checked(NoteSerializer)
        at = {"at": datetime.fromtimestamp(fields["at"], UTC)} if "at" in fields else {}
        with transaction.atomic():
            made = marking.mark(Mark.Kind.NOTE, storable(fields["text"], 300), by=request.user.get_username(), **at)
            record("created", "note", str(made.pk), after={"text": made.text})
        return Response(MarkSerializer(marking.event(made)).data, status=status.HTTP_201_CREATED)


class MarkDetail(View):
    serializer_class = None

    @extend_schema(
        operation_id="marks_delete",
        parameters=[OpenApiParameter("id", int, OpenApiParameter.PATH)],
        responses={204: OpenApiResponse(description="Deleted.")},
    )
    def delete(self, request, id):
        """Delete a note. Other marks stay."""
        with transaction.atomic():
            note = get_object_or_404(Mark, pk=id, kind=Mark.Kind.NOTE)
            record("deleted", "note", str(note.pk), before={"text": note.text})
            note.delete()
        return Response(status=status.HTTP_204_NO_CONTENT)
