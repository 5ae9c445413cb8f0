"""API keys, API tokens and join tokens: shown once, when they are made."""

from __future__ import annotations

from datetime import timedelta

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.response import Response

from registry import joining, members
from registry.api.serializers.members import (
    JoinCommandSerializer,
    JoinLineSerializer,
    JoinTokenSerializer,
    NewJoinTokenSerializer,
)
from registry.api.serializers.secrets import (
    ApiKeyChangeSerializer,
    ApiKeySerializer,
    ApiTokenSerializer,
    NewApiKeySerializer,
    NewApiTokenSerializer,
)
from registry.api.views.base import Resource, View
from registry.models import ApiKey, ApiToken, JoinToken


class _Secrets(Resource):
    lookup_field = "name"

    def perform_destroy(self, instance):
        members.delete_secret(instance)


class ApiKeys(_Secrets):
    descriptions = {
        "list": "All API keys, without the keys.",
        "retrieve": "One API key.",
        "destroy": "Delete an API key.",
    }
    queryset = ApiKey.objects.order_by("name")
    serializer_class = ApiKeySerializer

    @extend_schema(responses={201: NewApiKeySerializer})
    def create(self, request):
        """Create an API key. It is shown in this answer and never again."""
        row, key = members.create_api_key(**self.checked(ApiKeySerializer))
        return _once({**ApiKeySerializer(row).data, "key": key})

    @extend_schema(request=ApiKeyChangeSerializer)
    def partial_update(self, request, name):
        """Change some limits; gateways apply them within seconds."""
        row = self.get_object()
        changed = members.change_api_key(row, self.checked(ApiKeyChangeSerializer, row, partial=True))
        return Response(ApiKeySerializer(changed).data)


class ApiTokens(_Secrets):
    descriptions = {
        "list": "All API tokens, without the tokens.",
        "destroy": "Delete an API token; requests with it are refused from now on.",
    }
    queryset = ApiToken.objects.select_related("user")
    serializer_class = ApiTokenSerializer

    @extend_schema(responses={201: NewApiTokenSerializer})
    def create(self, request):
        """Create an API token for the caller's account or another one.

        It is shown in this answer and never again.
        """
        fields = self.checked(ApiTokenSerializer)
        row, token = members.create_api_token(**{"user": request.user, **fields})
        return _once({**ApiTokenSerializer(row).data, "token": token})


class JoinTokens(_Secrets):
    descriptions = {
        "list": "All join tokens, without the tokens.",
        "destroy": "Delete a join token; members that it admitted stay.",
    }
    queryset = JoinToken.objects.order_by("name")
    serializer_class = JoinTokenSerializer

    @extend_schema(responses={201: NewJoinTokenSerializer})
    def create(self, request):
        """Create a token that admits nodes, gateways or both.

        It is shown in this answer and never again.
        """
        row, token = members.create_join_token(**self.checked(JoinTokenSerializer))
        return _once({**JoinTokenSerializer(row).data, "token": token})


class JoinCommand(View):
    """The line by which another box joins."""

    serializer_class = JoinCommandSerializer

    @extend_schema(responses={201: JoinLineSerializer})
    def post(self, request):
        """Create a join token that works once, and the command that uses it.

        Both are shown in this answer and never again.
        """
        fields = self.checked(JoinCommandSerializer)
        ttl = timedelta(minutes=fields.get("minutes", 60))
        line = joining.join_line(fields["role"], fields.get("control", ""), ttl)
        return _once(JoinLineSerializer(line).data)


def _once(data: dict) -> Response:
    return Response(data, status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})
