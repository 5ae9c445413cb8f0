from rest_framework import serializers

from registry.api.serializers import StrictMixin
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


class ChoicesSerializer(serializers.Serializer):
    """A name by setting."""

    strategy = serializers.CharField()
    routing = serializers.CharField()


class AllowedSerializer(serializers.Serializer):
    """The names that each setting may have."""

    strategy = serializers.ListField(child=serializers.CharField())
    routing = serializers.ListField(child=serializers.CharField())


class ControlSerializer(ChoicesSerializer):
    """What the next plan is made with. ``defaults``: by the environment; ``chosen``: by operators, null where nobody
    chose; ``allowed``: the names there are."""

    defaults = ChoicesSerializer()
    chosen = ChoicesSerializer(help_text="null where the default holds")
    allowed = AllowedSerializer()


class ControlChangeSerializer(StrictMixin, serializers.Serializer):
    """What operators may choose; null or empty goes back to the default."""

    strategy = serializers.CharField(max_length=40, required=False, allow_null=True, allow_blank=True)
    routing = serializers.CharField(max_length=40, required=False, allow_null=True, allow_blank=True)
