"""Profiles, and the jobs that make them."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from registry import profiling
from registry.api.serializers.variants import ProfileJobSerializer, ProfileJobsSerializer, ProfileSerializer
from registry.api.views.base import Resource, View
from registry.audit.recording import record
from registry.errors import Conflict
from registry.models import Profile, ProfileJob, Variant

_APPLICATION = OpenApiParameter("application", str, description="Only this application's.")
_VARIANT = OpenApiParameter("variant", str, description="Only variants of this name.")
_DEVICE_TYPE = OpenApiParameter("device_type", str, description="Only on this device type.")
_STATE = OpenApiParameter("state", str, enum=ProfileJob.State.values, description="Only in this state.")

_FIELDS = {"application": "variant__application__name", "variant": "variant__name", "device_type": "device_type"}


class _Filtered(Resource):
    def filter_queryset(self, queryset):
        wanted = self.request.query_params
        return queryset.filter(**{lookup: wanted[name] for name, lookup in _FIELDS.items() if name in wanted})


@extend_schema_view(list=extend_schema(parameters=[_APPLICATION, _VARIANT, _DEVICE_TYPE]))
class Profiles(_Filtered):
    """Profiles, of all applications or one."""

    queryset = (
        Profile.objects.select_related("variant__application")
        .prefetch_related("latencies")
        .order_by("variant__application__name", "variant__name", "device_type")
    )
    serializer_class = ProfileSerializer


class VariantProfile(View):
    """Profiling again."""

    serializer_class = ProfileJobsSerializer

    @extend_schema(operation_id="variants_profile", request=None, responses={202: ProfileJobsSerializer})
    def post(self, request, name, variant):
        """Profile a variant again on every device type.

        Jobs that are open already are returned as they are.
        """
        existing = self.variant()
        if existing.state == Variant.State.DRAINING:
            raise Conflict(f"variant {existing} is being deleted")
        jobs = profiling.order(existing, ProfileJob.Reason.DEMAND)
        if not jobs:
            raise Conflict("there is no device to measure on: no approved node has joined")
        record("profile ordered", "variant", str(existing))
        return Response({"jobs": ProfileJobSerializer(jobs, many=True).data}, status.HTTP_202_ACCEPTED)


@extend_schema_view(list=extend_schema(parameters=[_APPLICATION, _VARIANT, _DEVICE_TYPE, _STATE]))
class ProfileJobs(_Filtered):
    descriptions = {
        "list": "Profile jobs, the latest first.",
        "retrieve": "One profile job.",
        "destroy": "Cancel a profile job; a device that measures it stops.\n\n"
        "Its variant is planned only on device types that have a profile.",
    }
    queryset = ProfileJob.objects.select_related("variant__application", "device")
    serializer_class = ProfileJobSerializer

    def filter_queryset(self, queryset):
        jobs, state = super().filter_queryset(queryset), self.request.query_params.get("state")
        if state is None:
            return jobs
        if state not in ProfileJob.State.values:
            raise ValidationError({"state": [f"{state[:60]!r} is not one of {', '.join(ProfileJob.State.values)}"]})
        return jobs.filter(state=state)

    @extend_schema(operation_id="profile_jobs_cancel")
    def destroy(self, request, pk):
        return super().destroy(request)

    def perform_destroy(self, instance):
        profiling.withdraw(instance, f"cancelled by {self.request.user.get_username()}")
        record("profile cancelled", "variant", str(instance.variant), after={"device_type": instance.device_type})
