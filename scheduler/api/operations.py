"""Operations over REST."""

from __future__ import annotations

from dataclasses import replace

from django.http import Http404
from django.urls import resolve
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.response import Response

from registry.access import table
from registry.access.roles import AccessRole, caller_role
from registry.api.views.base import View
from registry.audit.recording import record
from scheduler import operations, uploads


class OperationSerializer(serializers.Serializer):
    """Work that goes on in the background, or ended within an hour."""

    key = serializers.CharField(help_text="KIND:REF, the same for as long as it lasts.")
    kind = serializers.ChoiceField(choices=["upload", "profiling", "solving", "simulation", "drain"])
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=["waiting", "running", "done", "failed", "cancelled"])
    by = serializers.CharField(help_text="The account that asked for it; Nereus: nobody did.")
    since = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True, help_text="null: it goes on.")
    progress = serializers.FloatField(allow_null=True, help_text="0 to 1; null: not known.")
    detail = serializers.CharField()
    cancel = serializers.CharField(help_text="DELETE this address to end it; empty: it cannot be ended by the caller.")
    consequence = serializers.CharField(help_text="The effect of ending it.")
    application = serializers.CharField(help_text="Empty: none.")


class OperationList(View):
    serializer_class = OperationSerializer

    @extend_schema(operation_id="tasks_list", responses=OperationSerializer(many=True))
    def get(self, request):
        """List operations: those under way, then profile jobs ended within an hour."""
        role = caller_role(request)
        return self.listed([_seen_by(role, each) for each in operations.current()], OperationSerializer)


def _seen_by(role: AccessRole, operation: operations.Operation) -> operations.Operation:
    if not operation.cancel or table.permits(role, resolve(operation.cancel).view_name, "DELETE"):
        return operation
    return replace(operation, cancel="", consequence="")


class UploadDetail(View):
    serializer_class = None

    @extend_schema(operation_id="uploads_cancel", responses={204: OpenApiResponse(description="Cancelled.")})
    def delete(self, request, key):
        """Cancel an operation.

        The sender of an upload gets an error within a second or two; an upload of less than a megabyte is over before
        that.
        """
        by = request.user.get_username()
        row = uploads.cancel(key, by)
        if row is None:
            raise Http404("no such upload")
        record(
            "upload cancelled", "application", row["application"], before={"by": row["by"], "bytes": row["received"]}
        )
        return Response(status=status.HTTP_204_NO_CONTENT)
