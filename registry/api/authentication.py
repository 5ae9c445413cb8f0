"""Who is calling: an operator's API token, or a node that fetches files."""

from __future__ import annotations

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, TokenAuthentication, get_authorization_header
from rest_framework.permissions import BasePermission

from registry.members import node_by_credential
from registry.models import Node


class BearerAuthentication(TokenAuthentication):
    """``Authorization: Bearer TOKEN``; the framework's own word ``Token`` is understood too."""

    keyword = "Bearer"

    def authenticate(self, request):
        scheme = get_authorization_header(request).split(b" ", 1)[0].lower()
        # An instance serves one request, so this names the scheme that its caller used.
        self.keyword = "Token" if scheme == b"token" else "Bearer"
        return super().authenticate(request)

    def authenticate_header(self, request) -> str:
        return 'Bearer realm="nereus"'


class NodeUser:
    """A node as the one who asks. Not a user: it may do nothing that asks for one."""

    is_authenticated = True
    is_active = True
    is_staff = False

    def __init__(self, node: Node):
        self.node = node


class NodeAuthentication(BaseAuthentication):
    """``Authorization: Bearer CREDENTIAL`` of an approved node; anything else is left to the next method."""

    def authenticate(self, request):
        scheme, _, credential = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        node = node_by_credential(credential.decode("latin-1").strip())
        return None if node is None else (NodeUser(node), None)

    def authenticate_header(self, request) -> str:
        return 'Bearer realm="nereus"'


class StaffOrNode(BasePermission):
    """Operators and approved nodes."""

    def has_permission(self, request, view) -> bool:
        return bool(request.user and (request.user.is_staff or isinstance(request.user, NodeUser)))


class _BearerScheme(OpenApiAuthenticationExtension):
    target_class = BearerAuthentication
    name = "apiToken"

    def get_security_definition(self, auto_schema):
        return {"type": "http", "scheme": "bearer", "description": "An operator's API token (credentials.json)."}


class _NodeScheme(OpenApiAuthenticationExtension):
    target_class = NodeAuthentication
    name = "nodeCredential"

    def get_security_definition(self, auto_schema):
        return {"type": "http", "scheme": "bearer", "description": "The credential that a node got when it joined."}
