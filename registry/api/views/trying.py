"""One query through the console, as a client would send it."""

from __future__ import annotations

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from registry import signatures, trying
from registry.api.serializers.fields import NumberField, OneOfField, StrictMixin
from registry.api.views.base import View
from registry.models import name_validator


@extend_schema_field(OpenApiTypes.ANY)
class ElementsField(serializers.JSONField):
    pass


class TriedInputSerializer(StrictMixin, serializers.Serializer):
    name = serializers.CharField(max_length=signatures.MAX_NAME)
    datatype = OneOfField(list(signatures.DATATYPES))
    shape = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=2**31 - 1), max_length=signatures.MAX_RANK
    )
    data = serializers.ListField(
        child=ElementsField(), required=False, allow_null=True, help_text="Elements in row-major order."
    )
    base64 = serializers.CharField(
        required=False, allow_null=True, help_text="Instead of data: the elements in little-endian binary form."
    )

    def validate(self, fields):
        if (fields.get("data") is None) == (fields.get("base64") is None):
            raise serializers.ValidationError({"data": "give data or base64, and not both"})
        return fields


class TriedParametersSerializer(StrictMixin, serializers.Serializer):
    variant = serializers.CharField(max_length=63, required=False, allow_null=True, validators=[name_validator])
    min_accuracy = NumberField(min_value=0, max_value=100, required=False, allow_null=True)
    latency_ms = NumberField(min_value=0.001, max_value=600_000, required=False, allow_null=True)


class TriedQuerySerializer(StrictMixin, serializers.Serializer):
    inputs = TriedInputSerializer(many=True, min_length=1, max_length=signatures.MAX_TENSORS)
    parameters = TriedParametersSerializer(required=False)


class RankedSerializer(serializers.Serializer):
    index = serializers.IntegerField()
    value = serializers.FloatField(allow_null=True)


class ShownOutputSerializer(serializers.Serializer):
    name = serializers.CharField()
    datatype = serializers.CharField()
    shape = serializers.ListField(child=serializers.IntegerField())
    elements = serializers.IntegerField(help_text="Number of its elements.")
    data = serializers.ListField(child=ElementsField(), help_text=f"The first {trying.MOST_ELEMENTS} of them, flat.")
    top = serializers.ListField(
        child=RankedSerializer(many=True),
        help_text=f"The {trying.RANKED} largest elements of each of the first {trying.RANKED_ROWS} rows.",
    )


class TriedAnswerSerializer(serializers.Serializer):
    status = serializers.IntegerField(help_text="HTTP's, from the gateway.")
    took_ms = serializers.FloatField(help_text="From the control plane to the gateway and back.")
    gateway = serializers.CharField()
    error = serializers.CharField(help_text="Empty: it was answered.")
    parameters = serializers.DictField(child=ElementsField(), help_text="Variant, accuracy, device, times of stages.")
    outputs = ShownOutputSerializer(many=True)
    curl = serializers.CharField(help_text="The same query; inputs of more than 16 elements are zeros.")
    tritonclient = serializers.CharField(help_text="The same query; inputs of more than 16 elements are zeros.")


class ApplicationTry(View):
    """Trying an application."""

    serializer_class = TriedQuerySerializer

    @extend_schema(operation_id="applications_try", request=TriedQuerySerializer, responses=TriedAnswerSerializer)
    def post(self, request, name):
        """Send one query to a gateway, as a client would.

        It has a key of the control plane's own, stays within its limits, and counts as demand.
        """
        application = self.application()
        query = self.checked(TriedQuerySerializer)
        return Response(TriedAnswerSerializer(trying.try_query(application, query)).data)
