"""Profiles, and the jobs that make them."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from registry import profiling
from registry.api.serializers.variants import ProfileJobSerializer, ProfileJobsSerializer, ProfileSerializer
from registry.api.views.base import View
from registry.audit.recording import record
from registry.errors import Conflict
from registry.models import Profile, ProfileJob, Variant

_APPLICATION = OpenApiParameter("application", str, description="Only this application's.")
_VARIANT = OpenApiParameter("variant", str, description="Only variants of this name.")
_DEVICE_TYPE = OpenApiParameter("device_type", str, description="Only on this device type.")
_STATE = OpenApiParameter("state", str, enum=ProfileJob.State.values, description="Only in this state.")

_FIELDS = {"application": "variant__application__name", "variant": "variant__name", "device_type": "device_type"}


class ProfileList(View):
    """Profiles, of all applications or one."""

    serializer_class = ProfileSerializer

    @extend_schema(
        operation_id="profiles_list",
        parameters=[_APPLICATION, _VARIANT, _DEVICE_TYPE],
        responses=ProfileSerializer(many=True),
    )
    def get(self, request):
        return self._profiles(Profile.objects.all())

    def _profiles(self, profiles):
        for parameter, lookup in _FIELDS.items():
            if parameter in self.request.query_params:
                profiles = profiles.filter(**{lookup: self.request.query_params[parameter]})
        related = profiles.select_related("variant__application").prefetch_related("latencies")
        order = ("variant__application__name", "variant__name", "device_type")
        return self.listed(related.order_by(*order), ProfileSerializer)


class ApplicationProfileList(ProfileList):
    """One application's profiles."""

    @extend_schema(
        operation_id="application_profiles_list",
        parameters=[_VARIANT, _DEVICE_TYPE],
        responses=ProfileSerializer(many=True),
    )
    def get(self, request, name):
        return self._profiles(Profile.objects.filter(variant__application=self.application()))


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


class ProfileJobList(View):
    """Profile jobs, the latest first."""

    serializer_class = ProfileJobSerializer

    @extend_schema(
        operation_id="profile_jobs_list",
        parameters=[_APPLICATION, _VARIANT, _DEVICE_TYPE, _STATE],
        responses=ProfileJobSerializer(many=True),
    )
    def get(self, request):
        jobs = ProfileJob.objects.select_related("variant__application", "device")
        for parameter, lookup in _FIELDS.items():
            if parameter in request.query_params:
                jobs = jobs.filter(**{lookup: request.query_params[parameter]})
        state = request.query_params.get("state")
        if state is not None and state not in ProfileJob.State.values:
            raise ValidationError({"state": [f"{state[:60]!r} is not one of {', '.join(ProfileJob.State.values)}"]})
        if state is not None:
            jobs = jobs.filter(state=state)
        return self.listed(jobs, ProfileJobSerializer)


class ProfileJobDetail(View):
    """One profile job."""

    queryset = ProfileJob.objects.select_related("variant__application", "device")
    serializer_class = ProfileJobSerializer

    @extend_schema(operation_id="profile_jobs_get")
    def get(self, request, pk):
        return Response(ProfileJobSerializer(self.get_object()).data)

    @extend_schema(operation_id="profile_jobs_cancel", responses={204: OpenApiResponse(description="Cancelled.")})
    def delete(self, request, pk):
        """Cancel a profile job; a device that measures it stops.

        Its variant is planned only on device types that have a profile.
        """
        job = self.get_object()
        profiling.withdraw(job, f"cancelled by {request.user.get_username()}")
        record("profile cancelled", "variant", str(job.variant), after={"device_type": job.device_type})
        return Response(status=status.HTTP_204_NO_CONTENT)
