"""Instances' states and the advice which devices could sleep, over REST."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers

from registry.api.views.base import View
from scheduler.instances.states import instances
from scheduler.instances.use import current_advice
from workers.dispatch.instance_states import InstanceState


class InstanceSerializer(serializers.Serializer):
    """A variant on a device, or one that no device holds."""

    device = serializers.CharField(help_text="NODE/DEVICE; empty: it is loaded nowhere.")
    device_type = serializers.CharField()
    application = serializers.CharField(source="variant.application.name")
    variant = serializers.CharField(source="variant.name")
    state = serializers.ChoiceField(
        choices=[str(state) for state in InstanceState],
        help_text="inactive: not loaded; overloaded: at its peak; interfered: slower than profiled; else active.",
    )
    rate = serializers.FloatField(help_text="Rows/s served in the last 10 s.")
    capacity = serializers.FloatField(help_text="Rows/s alone on the device, by its profile; 0: unknown.")
    load = serializers.FloatField(help_text="Share of the device's time that its rates take at their capacities.")
    ratio = serializers.FloatField(help_text="Observed over profiled run time; 0: nothing observed.")


class SleepAdviceSerializer(serializers.Serializer):
    """Advice for the devices of a type."""

    type = serializers.CharField()
    devices = serializers.IntegerField(help_text="That plans may use.")
    could_sleep = serializers.ListField(child=serializers.CharField())
    wanted = serializers.BooleanField(help_text="Whether another device of the type is wanted.")
    utilisation = serializers.FloatField(help_text="Of all its devices, 0 to 1.")
    after = serializers.FloatField(help_text="Of the others, where these sleep.")
    reason = serializers.CharField()


class InstanceList(View):
    """The states of all instances."""

    serializer_class = InstanceSerializer

    @extend_schema(operation_id="instances_list", responses=InstanceSerializer(many=True))
    def get(self, request):
        """List instances by device and variant; variants that no device holds come last."""
        return self.listed(instances(), InstanceSerializer)


class SleepAdvice(View):
    """Devices that could sleep."""

    serializer_class = SleepAdviceSerializer

    @extend_schema(operation_id="sleep_advice_list", responses=SleepAdviceSerializer(many=True))
    def get(self, request):
        """List, by device type, devices that could sleep at no loss.

        For each type, the advice also says whether another device is wanted.
        """
        return self.listed(current_advice(), SleepAdviceSerializer)
