"""Authentication of callers: API tokens, and nodes that fetch files."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, Throttled
from rest_framework.permissions import BasePermission

from registry.access import table
from registry.access.roles import AccessRole, caller_role
from registry.access.throttles import StrangerThrottle
from registry.members import node_by_credential
from registry.models import ApiKey, ApiToken, Node, hash_secret
from workers.secret_kinds import USES, kind_of

#: how often a token's last use is written
USED_EVERY = timedelta(minutes=1)


def token_of(authorization: bytes) -> ApiToken | None:
    """The API token of a ``Bearer`` or ``Token`` header; None: another scheme.

    Raises AuthenticationFailed.
    """
    parts = authorization.split()
    if not parts or parts[0].lower() not in (b"bearer", b"token"):
        return None
    if len(parts) != 2:
        raise AuthenticationFailed("Authorization: must be 'Bearer TOKEN', without spaces in the token")
    secret = parts[1].decode("latin-1")
    token = ApiToken.objects.select_related("user").filter(token_hash=hash_secret(secret)).first()
    if token is None and (kind := kind_of(secret) or _kind_without_prefix(secret)) not in ("", "api_token"):
        raise AuthenticationFailed(
            f"Authorization: this is {USES[kind]}; REST takes an API token, such as api_token of credentials.json"
        )
    if token is None or not token.user.is_active:
        raise AuthenticationFailed("Authorization: this token is not known")
    if token.expired:
        raise AuthenticationFailed(f"Authorization: this token expired at {token.expires:%Y-%m-%d %H:%M} UTC")
    return token


def _kind_without_prefix(secret: str) -> str:
    return "api_key" if ApiKey.objects.filter(key_hash=hash_secret(secret)).exists() else ""


class BearerAuthentication(BaseAuthentication):
    def authenticate(self, request):
        try:
            token = token_of(get_authorization_header(request))
        except AuthenticationFailed:
            slow_down(request)
            raise
        if token is None:
            return None
        now = timezone.now()
        unused = Q(last_used=None) | Q(last_used__lt=now - USED_EVERY) | Q(last_used__gt=now)
        ApiToken.objects.filter(unused, pk=token.pk).update(last_used=now)
        return token.user, token

    def authenticate_header(self, request) -> str:
        return 'Bearer realm="nereus"'


def slow_down(request) -> None:
    """Count a request without a valid account. Raises Throttled."""
    throttle = StrangerThrottle()
    if not throttle.allow_request(request, None):
        raise Throttled(throttle.wait())


class RolePermission(BasePermission):
    message = "The role does not permit this."

    def has_permission(self, request, view) -> bool:
        name = request.resolver_match.view_name
        role = caller_role(request)
        if isinstance(request.user, NodeUser):
            return name in table.MEMBER_ADDRESSES
        if not request.user or not request.user.is_authenticated:
            slow_down(request)
            raise NotAuthenticated
        needed = table.least(name, request.method)
        if needed is None and not hasattr(view, request.method.lower()):
            # The view answers that there is no such method.
            return role > AccessRole.ANYONE
        if request.method == "OPTIONS":
            needed = min(table.methods(name).values(), default=None)
        if needed is not None and role < needed:
            self.message = f"This needs the role {needed.label}; the caller's is {role.label}."
        return needed is not None and role >= needed


class NodeUser:
    """A node as the one who asks. Not a user: it may do nothing that asks for one."""

    is_authenticated = True
    is_active = True
    is_anonymous = False

    def __init__(self, node: Node):
        self.node = node


class NodeAuthentication(BaseAuthentication):
    def authenticate(self, request):
        scheme, _, credential = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        node = node_by_credential(credential.decode("latin-1").strip())
        return None if node is None else (NodeUser(node), None)

    def authenticate_header(self, request) -> str:
        return 'Bearer realm="nereus"'


class _BearerScheme(OpenApiAuthenticationExtension):
    target_class = BearerAuthentication
    name = "apiToken"

    def get_security_definition(self, auto_schema):
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An account's API token, limited to the token's role.",
        }


class _NodeScheme(OpenApiAuthenticationExtension):
    target_class = NodeAuthentication
    name = "nodeCredential"

    def get_security_definition(self, auto_schema):
        return {"type": "http", "scheme": "bearer", "description": "The credential that a node got when it joined."}
