"""The OpenAPI schema: every operation can answer with a problem."""

from __future__ import annotations

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

from registry.api.problems import MEDIA_TYPE, ProblemSerializer

DRAIN = OpenApiParameter(
    "drain", bool, description="Where it is in use: take it out of the plan first and delete it then (202)."
)


class ProblemSchema(AutoSchema):
    #: the ends of operations' names
    method_mapping = {"get": "get", "post": "create", "put": "put", "patch": "change", "delete": "delete"}

    def get_description(self):
        descriptions, action = getattr(self.view, "descriptions", {}), getattr(self.view, "action", "")
        return descriptions.get(action) or super().get_description()

    def _get_response_bodies(self, direction="response"):
        responses = super()._get_response_bodies(direction)
        if getattr(self.view, "action", "") == "destroy":
            responses["204"]["description"] = "Gone."
        responses["default"] = self._get_response_for_code(
            ProblemSerializer, "default", media_types=[MEDIA_TYPE], direction=direction
        )
        return responses
