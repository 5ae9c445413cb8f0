"""Plans and the choice of a stack as JSON."""

from typing import Any

from rest_framework import serializers

from registry.api.serializers.fields import StrictMixin
from scheduler.models import Plan
from workers.dispatch import stacks

_SHORT = ["version", "created", "trigger", "trigger_detail", "stack", "status", "demand", "served", "accuracy"]
_SHORT += ["solve_s", "gap", "method", "moves", "changed"]


class PlanSerializer(serializers.ModelSerializer):
    """A plan without its inputs.

    Rates are in items/s, accuracy in normalised percent, and ``gap`` is relative.
    """

    version = serializers.IntegerField(source="pk", read_only=True)
    method = serializers.CharField(
        read_only=True, help_text="What decided: milp (SCIP's MILP) or search; empty for strategies without either."
    )

    class Meta:
        model = Plan
        fields = _SHORT
        read_only_fields = fields


class PlanDetailSerializer(PlanSerializer):
    """A plan with its inputs, its outcome, the members' parts and its reasons.

    ``problem`` has the inputs, ``allocation`` the outcome, ``wire`` the plan as members got it, ``reasons`` why.
    """

    allocation = serializers.JSONField(source="whole_allocation", read_only=True)

    class Meta(PlanSerializer.Meta):
        fields = [*_SHORT, "reasons", "problem", "allocation", "wire"]
        read_only_fields = fields


class DemandChangeSerializer(serializers.Serializer):
    application = serializers.CharField()
    before = serializers.FloatField(allow_null=True, help_text="null: the plan before did not know it.")
    now = serializers.FloatField()


class DevicePriceSerializer(serializers.Serializer):
    type = serializers.CharField()
    devices = serializers.IntegerField(help_text="Devices of the type in the plan.")
    points = serializers.FloatField(help_text="Points of accuracy over all queries; 0 where demand is left out.")
    items = serializers.FloatField(help_text="Items/s at the best accuracy, where demand is left out; else 0.")
    sentence = serializers.CharField()


class DeviceMoveSerializer(serializers.Serializer):
    device = serializers.CharField()
    type = serializers.CharField()
    change = serializers.ChoiceField(choices=["new", "gone", "changed"])
    loads = serializers.ListField(child=serializers.CharField())
    unloads = serializers.ListField(child=serializers.CharField())
    keeps = serializers.ListField(child=serializers.CharField())
    before = serializers.FloatField(help_text="Items/s planned on it before.")
    now = serializers.FloatField()


class AccuracyCostSerializer(serializers.Serializer):
    application = serializers.CharField()
    before = serializers.FloatField(allow_null=True)
    now = serializers.FloatField(allow_null=True)
    best = serializers.FloatField(allow_null=True, help_text="Of the best variant that the plan could choose.")
    left_out = serializers.FloatField(help_text="Items/s that are not served.")


class TrailSerializer(serializers.Serializer):
    version = serializers.IntegerField()
    previous = serializers.IntegerField(allow_null=True, help_text="null: no earlier plan is kept with its problem.")
    sentence = serializers.CharField(help_text="All of it in one sentence.")
    causes = serializers.ListField(child=serializers.CharField(), help_text="Changes since the plan before.")
    demand = DemandChangeSerializer(many=True)
    limit = serializers.ListField(
        child=serializers.CharField(),
        help_text="Why not more is served, or not more accurately; empty: nothing is missing.",
    )
    prices = DevicePriceSerializer(many=True, help_text="Empty where the strategy has no prices.")
    moves = DeviceMoveSerializer(many=True)
    cost = AccuracyCostSerializer(many=True)


class PlanRequestSerializer(serializers.Serializer):
    requested = serializers.BooleanField(help_text="false: a plan was already waiting, which will see the same state")


class StackSerializer(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField()


class ControlSerializer(serializers.Serializer):
    stack = serializers.CharField(source="current.name")
    default = serializers.CharField(help_text="The environment's (NEREUS_STACK).")
    chosen = serializers.CharField(allow_null=True, help_text="An operator's; null where the default holds.")
    stacks = StackSerializer(many=True)


class ControlChangeSerializer(StrictMixin, serializers.Serializer):
    """An operator's choice, which is needed; null or empty: back to the default."""

    stack = serializers.CharField(max_length=40, required=False, allow_null=True, allow_blank=True)

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not fields:
            needed = f"must be given: one of {', '.join(stacks.LIVE)}, or null for the default"
            raise serializers.ValidationError({"stack": needed})
        return fields
