"""Applications and their validation sets."""

from __future__ import annotations

from django.http import Http404
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.response import Response
from rest_framework.reverse import reverse

from registry import services
from registry.api.schema import DRAIN
from registry.api.serializers.applications import (
    ApplicationSerializer,
    ValidationSetSerializer,
    ValidationUploadSerializer,
)
from registry.api.views.base import Resource, UploadMixin, View
from registry.models import Application, ValidationSet


class Applications(Resource):
    descriptions = {"list": "All applications.", "retrieve": "One application."}
    queryset = Application.objects.all()
    serializer_class = ApplicationSerializer
    lookup_field = "name"

    @extend_schema(responses={201: ApplicationSerializer})
    def create(self, request):
        """Register an application."""
        application = services.create_application(self.checked(ApplicationSerializer))
        where = reverse("application", [application.name], request=request)
        return Response(ApplicationSerializer(application).data, status.HTTP_201_CREATED, headers={"Location": where})

    def partial_update(self, request, name):
        """Change some fields.

        The name cannot be changed, nor the signature once there are variants.
        """
        application = self.application()
        fields = self.checked(ApplicationSerializer, application, partial=True)
        changed = services.change_application(application, fields)
        return Response(ApplicationSerializer(changed).data)

    @extend_schema(parameters=[DRAIN], responses={204: None, 202: ApplicationSerializer})
    def destroy(self, request, name):
        """Delete an application with all its variants.

        Refused (409) while they are in use.
        """
        application = self.application()
        if services.delete_application(application, drain=self.flag("drain")):
            return Response(status=status.HTTP_204_NO_CONTENT)
        application.refresh_from_db()
        return Response(ApplicationSerializer(application).data, status.HTTP_202_ACCEPTED)


class ValidationSetDetail(UploadMixin, View):
    """An application's validation set."""

    serializer_class = ValidationSetSerializer

    @extend_schema(operation_id="validation_set_get")
    def get(self, request, name):
        return Response(ValidationSetSerializer(self._existing()).data)

    @extend_schema(
        operation_id="validation_set_put",
        request={"multipart/form-data": ValidationUploadSerializer},
        responses={200: ValidationSetSerializer, 201: ValidationSetSerializer},
    )
    def put(self, request, name):
        """Upload or replace a validation set; measured variants are measured again."""
        application = self.application()
        fields = self.checked(ValidationUploadSerializer)
        validation, first = services.set_validation(application, fields["metric"], fields["file"].incoming)
        code = status.HTTP_201_CREATED if first else status.HTTP_200_OK
        return Response(ValidationSetSerializer(validation).data, code)

    @extend_schema(operation_id="validation_set_delete", responses={204: OpenApiResponse(description="Gone.")})
    def delete(self, request, name):
        """Delete a validation set; accuracies that were measured with it stay."""
        services.delete_validation(self._existing().application)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _existing(self) -> ValidationSet:
        validation = ValidationSet.objects.filter(application=self.application()).select_related("application").first()
        if validation is None:
            raise Http404
        return validation
