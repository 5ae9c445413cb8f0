"""Applications and validation sets as JSON, and accepted input."""

from __future__ import annotations

from typing import Any

from django.db.models import FloatField
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from registry import models, signatures
from registry.api.serializers.fields import NumberField, OneOfField, StrictMixin
from registry.errors import InputFault
from workers import metrics


class TensorSerializer(serializers.Serializer):
    name = serializers.CharField(max_length=signatures.MAX_NAME)
    datatype = OneOfField(list(signatures.DATATYPES))
    shape = serializers.ListField(
        child=serializers.IntegerField(min_value=-1),
        max_length=signatures.MAX_RANK,
        help_text="The batch dimension (-1) first, unless batch is false; other dimensions of -1 are open.",
    )


class SignatureSerializer(serializers.Serializer):
    inputs = TensorSerializer(many=True)
    outputs = TensorSerializer(many=True)


@extend_schema_field(SignatureSerializer)
class SignatureField(serializers.JSONField):
    """A signature that passes :func:`registry.signatures.check` with ``batch``."""

    def to_internal_value(self, data: Any) -> Any:
        batch = self.parent.initial_data.get("batch", getattr(self.parent.instance, "batch", True))
        try:
            batch = serializers.BooleanField().to_internal_value(batch)
        except serializers.ValidationError:
            batch = True  # The field's own error says what is wrong with it.
        _refuse(signatures.check(data, batch))
        return data


def _refuse(faults: list[InputFault]) -> None:
    wrong: dict[str, list[str]] = {}
    for fault in faults:
        wrong.setdefault(fault.field or "non_field_errors", []).append(fault.detail)
    if wrong:
        raise serializers.ValidationError(wrong)


@extend_schema_field({"type": "object", "additionalProperties": {"type": "number"}})
class PaddingField(serializers.JSONField):
    """Padding values by input; checked against the signature with the rest."""


@extend_schema_field({"type": "array", "items": {"type": "integer"}})
class SizesField(serializers.JSONField):
    """Sizes of open dimensions; checked against the signature with the rest."""


class ApplicationSerializer(StrictMixin, serializers.ModelSerializer):
    serializer_field_mapping = {**serializers.ModelSerializer.serializer_field_mapping, FloatField: NumberField}
    signature = SignatureField()
    padding = PaddingField(
        required=False,
        help_text="Values by input: its open dimensions are filled up to the longest of a batch. Outputs are cut back "
        "where the model names their dimensions as the input's. Other inputs run together by equal shape only.",
    )
    sizes = SizesField(
        required=False,
        help_text="Ascending sizes of open dimensions: uploads are tried, and profiles taken, at each of these size "
        "classes, and queries beyond the largest are refused. Empty: any size.",
    )

    class Meta:
        model = models.Application
        fields = [*models.Application.SETTABLE, "state", "created"]
        read_only_fields = ["state", "created"]
        # The unique constraint's own error (409) says more than a validation error would.
        extra_kwargs = {
            "name": {"validators": [models.name_validator]},
            "description": {"max_length": 2000},
            "group": {"help_text": "Your own name for applications that belong together; the console folds by it."},
            "batch": {
                "help_text": "False: models have no batch dimension. Shapes in the signature are the models' own "
                "(scalars, [time, batch, classes], states, any number of detected objects), and queries run one by one."
            },
            "non_finite": {
                "help_text": "NaN and infinities in a JSON answer: null, or error: status 422 with a hint to ask for "
                "binary data, which has them."
            },
            "weight": {"help_text": "Worth of one answer, where not all demand can be served."},
            "floor": {"help_text": "Share of the demand served before anything beyond other applications' floors is."},
        }

    def validate_name(self, name: str) -> str:
        if self.instance is not None and name != self.instance.name:
            raise serializers.ValidationError("cannot be changed: clients address the application by it")
        return name

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        self._validate_shapes(fields)
        return fields

    def _validate_shapes(self, fields: dict[str, Any]) -> None:
        signature = fields.get("signature", getattr(self.instance, "signature", None))
        batch = fields.get("batch", getattr(self.instance, "batch", True))
        wrong: dict[str, Any] = {}
        if "batch" in fields and "signature" not in fields:
            _refuse([InputFault("signature", fault.detail) for fault in signatures.check(signature, batch)])
        for name, check in (("padding", signatures.check_padding), ("sizes", signatures.check_sizes)):
            value = fields.get(name, getattr(self.instance, name, None))
            faults = check(value, signature, batch) if value is not None else []
            if faults:
                wrong[name] = {fault.field: [fault.detail] for fault in faults if fault.field} or [
                    fault.detail for fault in faults
                ]
        if wrong:
            raise serializers.ValidationError(wrong)


class ValidationSetSerializer(serializers.ModelSerializer):
    application = serializers.SlugRelatedField("name", read_only=True)

    class Meta:
        model = models.ValidationSet
        fields = ["application", "metric", "rows", "digest", "size_bytes", "created"]


class ValidationUploadSerializer(StrictMixin, serializers.Serializer):
    file = serializers.FileField(help_text="An .npz with one array an input and labels.", allow_empty_file=True)
    metric = OneOfField(list(metrics.names()))
