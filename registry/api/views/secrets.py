"""API keys and join tokens: shown once, when they are made."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.response import Response

from registry import members
from registry.api.serializers import (
    ApiKeySerializer,
    JoinTokenSerializer,
    NewApiKeySerializer,
    NewJoinTokenSerializer,
)
from registry.api.views.base import View
from registry.models import ApiKey, JoinToken


class ApiKeyList(View):
    """All API keys, without the keys."""

    queryset = ApiKey.objects.order_by("name")
    serializer_class = ApiKeySerializer

    @extend_schema(operation_id="api_keys_list", responses=ApiKeySerializer(many=True))
    def get(self, request):
        return self.listed(self.get_queryset(), ApiKeySerializer)

    @extend_schema(operation_id="api_keys_create", responses={201: NewApiKeySerializer})
    def post(self, request):
        """Make a key for queries. It is shown in this answer and never again."""
        row, key = members.create_api_key(**self.checked(ApiKeySerializer))
        return _once({**ApiKeySerializer(row).data, "key": key})


class ApiKeyDetail(View):
    """One API key."""

    queryset = ApiKey.objects.all()
    serializer_class = ApiKeySerializer
    lookup_field = "name"

    @extend_schema(operation_id="api_keys_delete", responses={204: OpenApiResponse(description="Gone.")})
    def delete(self, request, name):
        """Take the key away."""
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
        """Make a token that admits nodes and gateways. It is shown in this answer and never again."""
        row, token = members.create_join_token(**self.checked(JoinTokenSerializer))
        return _once({**JoinTokenSerializer(row).data, "token": token})


class JoinTokenDetail(View):
    """One join token."""

    queryset = JoinToken.objects.all()
    serializer_class = JoinTokenSerializer
    lookup_field = "name"

    @extend_schema(operation_id="join_tokens_delete", responses={204: OpenApiResponse(description="Gone.")})
    def delete(self, request, name):
        """Take the token away; members that it admitted stay."""
        members.delete_secret(self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


def _once(data: dict) -> Response:
    return Response(data, status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})
