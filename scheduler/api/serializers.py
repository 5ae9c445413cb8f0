from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers

from registry.api.serializers import StrictMixin, warnings_field
from scheduler.models import Plan
from workers.dispatch import stacks

_SHORT = [
    "version",
    "created",
    "trigger",
    "trigger_detail",
    "stack",
    "status",
    "demand",
    "served",
    "accuracy",
    "solve_s",
    "gap",
    "method",
    "moves",
]


class PlanSerializer(serializers.ModelSerializer):
    """A plan without its inputs. Rates in items/s, accuracy in normalised percent, ``gap`` relative."""

    version = serializers.IntegerField(source="pk", read_only=True)
    method = serializers.CharField(
        read_only=True,
        help_text="How the strategy nereus decided: milp (SCIP's MILP) or search; empty for other strategies.",
    )

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


class StackSerializer(serializers.Serializer):
    """A stack that the cluster may serve with."""

    name = serializers.CharField()
    title = serializers.CharField()


class ControlSerializer(serializers.Serializer):
    """The stack that the next plan is made with."""

    stack = serializers.CharField(source="current.name")
    default = serializers.CharField(help_text="The environment's (NEREUS_STACK).")
    chosen = serializers.CharField(allow_null=True, help_text="An operator's; null where the default holds.")
    stacks = StackSerializer(many=True)


class ChangedControlSerializer(ControlSerializer):
    """The choices for the next plan after a request."""

    warnings = warnings_field()


class ControlChangeSerializer(StrictMixin, serializers.Serializer):
    """An operator's choice; null or empty goes back to the default."""

    RETIRED: ClassVar[Mapping[str, str]] = {"routing": "routing is part of the stack"}

    stack = serializers.CharField(max_length=40, required=False, allow_null=True, allow_blank=True)
    strategy = serializers.CharField(
        max_length=40,
        required=False,
        allow_null=True,
        allow_blank=True,
        help_text="Deprecated, gone with the next release: a stack by the name of its strategy.",
    )

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        if "strategy" not in fields:
            return fields
        strategy = fields.pop("strategy")
        if "stack" in fields:
            self.warnings.append("strategy: ignored; stack is given")
            return fields
        if strategy and strategy not in stacks.LIVE:
            names = ", ".join(stacks.LIVE)
            raise serializers.ValidationError({"strategy": f"{strategy!r} names no stack; give stack, one of {names}"})
        self.warnings.append("strategy: replaced by stack, which is set to the same name")
        return {**fields, "stack": strategy}
