"""Variants: upload, change, delete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.response import Response
from rest_framework.reverse import reverse

from registry import services, usage
from registry.accuracy import normalized_accuracies
from registry.api.schema import DRAIN
from registry.api.serializers.variants import VariantChangeSerializer, VariantSerializer, VariantUploadSerializer
from registry.api.views.base import UploadMixin, View
from registry.models import Application, Variant


def _context(application: Application, variants: Iterable[Variant]) -> dict[str, Any]:
    return {
        "normalized": normalized_accuracies([application]),
        "resident": usage.resident_on(variant.pk for variant in variants),
        "warm": usage.warm_on(variant.pk for variant in variants),
    }


def _rendered(variant: Variant) -> dict[str, Any]:
    return VariantSerializer(variant, context=_context(variant.application, [variant])).data


class VariantList(UploadMixin, View):
    """An application's variants."""

    serializer_class = VariantSerializer

    @extend_schema(operation_id="variants_list", responses=VariantSerializer(many=True))
    def get(self, request, name):
        application = self.application()
        variants = application.variants.select_related("application")
        return self.listed(variants, VariantSerializer, **_context(application, variants))

    @extend_schema(
        operation_id="variants_create",
        request={"multipart/form-data": VariantUploadSerializer},
        responses={201: VariantSerializer},
    )
    def post(self, request, name):
        """Upload an ONNX model. It is inspected now and profiled next."""
        application = self.application()
        fields = self.checked(VariantUploadSerializer)
        sample = fields["sample"].incoming if "sample" in fields else None
        variant = services.create_variant(
            application, fields["name"], fields["file"].incoming, fields.get("accuracy"), sample
        )
        where = reverse("variant", [application.name, variant.name], request=request)
        return Response(_rendered(variant), status.HTTP_201_CREATED, headers={"Location": where})


class VariantDetail(View):
    """One variant."""

    serializer_class = VariantSerializer

    @extend_schema(operation_id="variants_get")
    def get(self, request, name, variant):
        return Response(_rendered(self.variant()))

    @extend_schema(operation_id="variants_change", request=VariantChangeSerializer)
    def patch(self, request, name, variant):
        """Pin or exclude a variant, declare its accuracy, or have it measured (null).

        A new plan is requested.
        """
        existing = self.variant()
        fields = self.checked(VariantChangeSerializer)
        return Response(_rendered(services.change_variant(existing, fields)))

    @extend_schema(
        operation_id="variants_delete",
        parameters=[DRAIN],
        responses={204: OpenApiResponse(description="Gone."), 202: VariantSerializer},
    )
    def delete(self, request, name, variant):
        """Delete a variant. Refused (409) while it is in use."""
        existing = self.variant()
        if services.delete_variant(existing, drain=self.flag("drain")):
            return Response(status=status.HTTP_204_NO_CONTENT)
        existing.refresh_from_db()
        return Response(_rendered(existing), status.HTTP_202_ACCEPTED)
