"""Repairs over REST."""

from __future__ import annotations

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.response import Response

from registry.access.roles import caller_role
from registry.api.views.base import View
from scheduler.repairs import known, listing
from scheduler.repairs.repair import Repair, Severity


class ActionSerializer(serializers.Serializer):
    """One sentence, and the call that does it where there is one."""

    text = serializers.CharField()
    label = serializers.CharField(help_text="A button's text; empty: no call does it.")
    method = serializers.CharField()
    url = serializers.CharField()
    permitted = serializers.SerializerMethodField(help_text="Whether there is a call, and the caller may make it.")

    def get_permitted(self, action) -> bool:
        return action.permitted(self.context["role"])


class RepairSerializer(serializers.Serializer):
    key = serializers.CharField(help_text="KIND:REF, the same for as long as it lasts.")
    kind = serializers.CharField()
    severity = serializers.ChoiceField(
        choices=[str(severity) for severity in Severity],
        help_text="error: something does not work now; warning: it will not unless somebody acts.",
    )
    title = serializers.CharField()
    effect = serializers.CharField(help_text="In numbers.")
    since = serializers.DateTimeField()
    at_least = serializers.BooleanField(help_text="Whether it may have begun before `since`.")
    application = serializers.CharField(help_text="The application that it concerns; empty: none.")
    ignorable = serializers.BooleanField()
    ignored_by = serializers.CharField(help_text="The account that ignores it; empty: nobody.")
    action = ActionSerializer()


_DONE = {204: OpenApiResponse(description="Done.")}
_KEY = OpenApiParameter("key", OpenApiTypes.STR, OpenApiParameter.PATH, description="KIND:REF, as in the list.")


class RepairList(View):
    serializer_class = RepairSerializer

    @extend_schema(operation_id="repairs_list", responses=RepairSerializer(many=True))
    def get(self, request):
        """List all repairs that the caller's role may see, ignored ones too.

        Errors come first, then the oldest.
        """
        role = caller_role(request)
        return self.listed(
            [repair for repair in listing.current() if repair.visible(role)], RepairSerializer, role=role
        )


class RepairIgnore(View):
    serializer_class = None

    def _repair(self, request, key: str) -> Repair:
        role = caller_role(request)
        for repair in listing.current():
            if repair.key == key and repair.visible(role):
                return repair
        raise Http404("no such repair")

    @extend_schema(operation_id="repairs_ignore", parameters=[_KEY], request=None, responses=_DONE)
    def post(self, request, key):
        """Ignore a repair."""
        known.ignore(self._repair(request, key), request.user.get_username())
        listing.forget()
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(operation_id="repairs_notice", parameters=[_KEY], responses=_DONE)
    def delete(self, request, key):
        """Show an ignored repair again."""
        known.notice(self._repair(request, key))
        listing.forget()
        return Response(status=status.HTTP_204_NO_CONTENT)
