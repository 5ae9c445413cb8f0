"""Plans, and what they are made with, over REST."""

from __future__ import annotations

from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import generics, status
from rest_framework.response import Response
from rest_framework.views import APIView

from registry.api.views.base import View
from registry.audit.recording import record
from scheduler import trail
from scheduler.control import choices
from scheduler.control.requests import request_plan
from scheduler.models import Plan
from workers.dispatch import stacks

from .serializers import (
    ControlChangeSerializer,
    ControlSerializer,
    PlanDetailSerializer,
    PlanRequestSerializer,
    PlanSerializer,
    TrailSerializer,
)


class PlanList(generics.ListAPIView):
    """All plans, newest first."""

    # A page of plans with all that each of them decided could be hundreds of megabytes.
    queryset = Plan.objects.only("pk", *(name for name in PlanSerializer.Meta.fields if name != "version"))
    serializer_class = PlanSerializer


class PlanDetail(generics.RetrieveAPIView):
    """One plan with its inputs and reasons."""

    queryset = Plan.objects.all()
    serializer_class = PlanDetailSerializer


class PlanTrail(View):
    serializer_class = TrailSerializer

    @extend_schema(operation_id="plan_trail")
    def get(self, request, pk: int) -> Response:
        """Explain a plan against the one before: demand, limit, moves and their cost."""
        if pk >= 2**63:
            raise Http404("no such plan")
        plan = get_object_or_404(Plan.objects.defer("problem", "wire"), pk=pk)
        return Response(TrailSerializer(trail.trail(plan, trail.before(plan))).data)


class CurrentPlan(APIView):
    @extend_schema(responses=PlanDetailSerializer)
    def get(self, request) -> Response:
        plan = Plan.objects.first()
        if plan is None:
            raise Http404("no plan was made yet")
        return Response(PlanDetailSerializer(plan).data)

    @extend_schema(request=None, responses={202: PlanRequestSerializer})
    def post(self, request) -> Response:
        requested = request_plan("manual", f"by {request.user.get_username()}")
        record("requested", "plan", "")
        return Response({"requested": requested}, status=status.HTTP_202_ACCEPTED)


class ControlView(View):
    serializer_class = ControlSerializer

    @extend_schema(operation_id="control_get")
    def get(self, request) -> Response:
        return Response(_control())

    @extend_schema(operation_id="control_change", request=ControlChangeSerializer)
    def patch(self, request) -> Response:
        """Choose another stack.

        It applies from the next plan on, which is requested at once; no query fails.
        """
        fields = self.checked(ControlChangeSerializer)
        choices.change(fields["stack"], request.user.get_username())
        return Response(_control())


def _control() -> dict:
    shown = {
        "current": choices.current(),
        "default": choices.default(),
        "chosen": choices.chosen(),
        "stacks": [stacks.STACKS[name] for name in stacks.LIVE],
    }
    return ControlSerializer(shown).data
