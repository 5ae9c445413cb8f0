from rest_framework import serializers

from scheduler.models import Plan

_SHORT = [
    "version",
    "created",
    "trigger",
    "trigger_detail",
    "strategy",
    "status",
    "demand",
    "served",
    "accuracy",
    "solve_s",
    "gap",
    "moves",
]


class PlanSerializer(serializers.ModelSerializer):
    """A plan without its inputs. Rates in items/s, accuracy in normalised percent, ``gap`` relative."""

    version = serializers.IntegerField(source="pk", read_only=True)

    class Meta:
        model = Plan
        fields = _SHORT
        read_only_fields = fields


class PlanDetailSerializer(PlanSerializer):
    """A plan with its inputs (``problem``), its outcome (``allocation``), what members got (``wire``) and why."""

    class Meta(PlanSerializer.Meta):
        fields = [*_SHORT, "reasons", "problem", "allocation", "wire"]
        read_only_fields = fields


class PlanRequestSerializer(serializers.Serializer):
    """The answer to asking for a plan."""

    requested = serializers.BooleanField(help_text="false: a plan was already waiting, which will see the same state")
