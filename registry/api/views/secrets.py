"""API keys, API tokens and join tokens: shown once, when they are made."""

from __future__ import annotations

from datetime import timedelta

from drf_spectacular.utils import OpenApiResponse, extend_schema
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
from registry.api.views.base import View
from registry.models import ApiKey, ApiToken, JoinToken


class ApiKeyList(View):
    """All API keys, without the keys."""

    queryset = ApiKey.objects.order_by("name")
    serializer_class = ApiKeySerializer

    @extend_schema(operation_id="api_keys_list", responses=ApiKeySerializer(many=True))
    def get(self, request):
        return self.listed(self.get_queryset(), ApiKeySerializer)

    @extend_schema(operation_id="api_keys_create", responses={201: NewApiKeySerializer})
    def post(self, request):
        """Create an API key. It is shown in this answer and never again."""
        row, key = members.create_api_key(**self.checked(ApiKeySerializer))
        return _once({**ApiKeySerializer(row).data, "key": key})


class ApiKeyDetail(View):
    """One API key."""

    queryset = ApiKey.objects.all()
    serializer_class = ApiKeySerializer
    lookup_field = "name"

    @extend_schema(operation_id="api_keys_get")
    def get(self, request, name):
        return Response(ApiKeySerializer(self.get_object()).data)

    @extend_schema(operation_id="api_keys_change", request=ApiKeyChangeSerializer)
    def patch(self, request, name):
        """Change some limits; gateways apply them within seconds."""
        row = self.get_object()
        changed = members.change_api_key(row, self.checked(ApiKeyChangeSerializer, row, partial=True))
        return Response(ApiKeySerializer(changed).data)

    @extend_schema(operation_id="api_keys_delete", responses={204: OpenApiResponse(description="Gone.")})
    def delete(self, request, name):
        """Delete an API key."""
        members.delete_secret(self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class ApiTokenList(View):
    """All API tokens, without the tokens."""

    queryset = ApiToken.objects.select_related("user")
    serializer_class = ApiTokenSerializer

    @extend_schema(operation_id="api_tokens_list", responses=ApiTokenSerializer(many=True))
    def get(self, request):
        return self.listed(self.get_queryset(), ApiTokenSerializer)

    @extend_schema(operation_id="api_tokens_create", responses={201: NewApiTokenSerializer})
    def post(self, request):
        """Create an API token for the caller's account or another one.

        It is shown in this answer and never again.
        """
        fields = self.checked(ApiTokenSerializer)
        row, token = members.create_api_token(**{"user": request.user, **fields})
        return _once({**ApiTokenSerializer(row).data, "token": token})


class ApiTokenDetail(View):
    """One API token."""

    queryset = ApiToken.objects.all()
    serializer_class = ApiTokenSerializer
    lookup_field = "name"

    @extend_schema(operation_id="api_tokens_delete", responses={204: OpenApiResponse(description="Gone.")})
    def delete(self, request, name):
        """Delete an API token; requests with it are refused from now on."""
        members.delete_secret(self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class JoinTokenList(View):
    """All join tokens, without the tokens."""

    queryset = JoinToken.objects.order_by("name")
    serializer_class = JoinTokenSerializer

    @extend_schema(operation_id="join_tokens_list", responses=JoinTokenSerializer(many=True))
    def get(self, request):
        return self.listed(self.get_queryset(), JoinTokenSerializer)

    @extend_schema(operation_id="join_tokens_create", responses={201: NewJoinTokenSerializer})
    def post(self, request):
        """Create a token that admits nodes, gateways or both.

        It is shown in this answer and never again.
        """
        row, token = members.create_join_token(**self.checked(JoinTokenSerializer))
        return _once({**JoinTokenSerializer(row).data, "token": token})


class JoinTokenDetail(View):
    """One join token."""

    queryset = JoinToken.objects.all()
    serializer_class = JoinTokenSerializer
    lookup_field = "name"

    @extend_schema(operation_id="join_tokens_delete", responses={204: OpenApiResponse(description="Gone.")})
    def delete(self, request, name):
        """Delete a join token; members that it admitted stay."""
        members.delete_secret(self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class JoinCommand(View):
    """The line by which another box joins."""

    serializer_class = JoinCommandSerializer

    @extend_schema(operation_id="join_commands_create", responses={201: JoinLineSerializer})
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
