"""Instances' states and the advice which devices could sleep, over REST."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers

from registry.api.views.base import View
from scheduler.instances.states import instances
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


class InstanceList(View):
    serializer_class = InstanceSerializer

    @extend_schema(operation_id="instances_list", responses=InstanceSerializer(many=True))
    def get(self, request):
        """List instances by device and variant; variants that no device holds come last."""
        return self.listed(instances(), InstanceSerializer)
