"""Base class of the registry's views."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.shortcuts import get_object_or_404
from rest_framework import generics, mixins, viewsets
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request

from registry.access import table
from registry.access.roles import caller_role
from registry.api.parsing import BoundedJSONParser, StoreUploadHandler
from registry.api.schema import ProblemSchema
from registry.models import Application, Variant


class View(generics.GenericAPIView):
    """JSON in, JSON out."""

    schema = ProblemSchema()
    parser_classes = [BoundedJSONParser]

    def application(self) -> Application:
        return get_object_or_404(Application, name=self.kwargs["name"])

    def variant(self) -> Variant:
        variants = Variant.objects.select_related("application")
        return get_object_or_404(variants, application__name=self.kwargs["name"], name=self.kwargs["variant"])

    def checked(self, serializer: type, *args: Any, **kwargs: Any) -> dict[str, Any]:
        parsed = serializer(*args, data=self.request.data, context=self.get_serializer_context(), **kwargs)
        parsed.is_valid(raise_exception=True)
        self._check_fields(parsed)
        return parsed.validated_data

    def _check_fields(self, parsed: Any) -> None:
        role, model = caller_role(self.request), getattr(getattr(parsed, "Meta", None), "model", None)
        for name, needed in table.FIELDS.get(self.request.resolver_match.view_name, {}).items():
            if role < needed and name in parsed.validated_data:
                now = model._meta.get_field(name).default if parsed.instance is None else getattr(parsed.instance, name)
                if parsed.validated_data[name] != now:
                    raise PermissionDenied(f"{name}: needs the role {needed.label}; the caller's is {role.label}.")

    def flag(self, name: str) -> bool:
        """A true-or-false query parameter, false when absent."""
        value = self.request.query_params.get(name)
        if value is None or value.lower() in ("false", "0"):
            return False
        if value.lower() in ("true", "1"):
            return True
        raise ValidationError({name: [f"{value[:60]!r} is neither true nor false"]})

    def listed(self, queryset: Any, serializer: type, **context: Any) -> Any:
        page = self.paginate_queryset(queryset)
        rows = serializer(page, many=True, context={**self.get_serializer_context(), **context})
        return self.get_paginated_response(rows.data)


class Resource(mixins.ListModelMixin, mixins.RetrieveModelMixin, mixins.DestroyModelMixin, viewsets.ViewSetMixin, View):
    #: what the schema says of inherited actions
    descriptions: dict[str, str] = {}


class UploadMixin:
    """Files stream into the store's incoming folder instead of Django's."""

    parser_classes = [MultiPartParser, BoundedJSONParser]

    def initialize_request(self, request: Any, *args: Any, **kwargs: Any) -> Request:
        # Before authentication: checking a session's CSRF token reads the form.
        self._handler = StoreUploadHandler(settings.NEREUS.max_upload_bytes)
        request.upload_handlers = [self._handler]
        return super().initialize_request(request, *args, **kwargs)

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._handler = None
        try:
            return super().dispatch(request, *args, **kwargs)
        finally:
            if self._handler is not None:
                self._handler.close()
