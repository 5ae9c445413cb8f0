"""The one table of who may do what.

REST permissions, pages, admin site and websockets read it. An address that is not in it is refused, and a test walks
over every address. ``docs/access.md`` is made from it (``python -m tools.access_doc``).
"""

from __future__ import annotations

from registry.access.roles import AccessRole

ANYONE, VIEWER, OWNER, OPERATOR = AccessRole.ANYONE, AccessRole.VIEWER, AccessRole.OWNER, AccessRole.OPERATOR

#: least role by name of an address and method; HEAD is as GET
REST: dict[str, dict[str, AccessRole]] = {
    "schema": {"GET": VIEWER},
    "applications": {"GET": VIEWER, "POST": OWNER},
    "application": {"GET": VIEWER, "PATCH": OWNER, "DELETE": OPERATOR},
    "validation-set": {"GET": VIEWER, "PUT": OWNER, "DELETE": OWNER},
    "application-try": {"POST": OWNER},
    "application-queries": {"GET": VIEWER},
    "application-frontier": {"GET": VIEWER},
    "application-slo": {"GET": VIEWER},
    "variants": {"GET": VIEWER, "POST": OWNER},
    "variant": {"GET": VIEWER, "PATCH": OWNER, "DELETE": OWNER},
    "variant-profile": {"POST": OWNER},
    "profiles": {"GET": VIEWER},
    "profile-jobs": {"GET": VIEWER},
    "profile-job": {"GET": VIEWER, "DELETE": OWNER},
    "tasks": {"GET": VIEWER},
    "upload": {"DELETE": OWNER},
    "nodes": {"GET": VIEWER},
    "node": {"GET": VIEWER, "DELETE": OPERATOR},
    "node-approve": {"POST": OPERATOR},
    "node-revoke": {"POST": OPERATOR},
    "node-cordon": {"POST": OPERATOR, "DELETE": OPERATOR},
    "node-division": {"POST": OPERATOR, "DELETE": OPERATOR},
    "node-claim": {"POST": OPERATOR, "DELETE": OPERATOR},
    "gateways": {"GET": VIEWER},
    "gateway": {"GET": VIEWER, "DELETE": OPERATOR},
    "gateway-approve": {"POST": OPERATOR},
    "gateway-revoke": {"POST": OPERATOR},
    "gateway-claim": {"POST": OPERATOR, "DELETE": OPERATOR},
    "devices": {"GET": VIEWER},
    "device": {"GET": VIEWER, "DELETE": OPERATOR},
    "api-keys": {"GET": OPERATOR, "POST": OPERATOR},
    "api-key": {"GET": OPERATOR, "PATCH": OPERATOR, "DELETE": OPERATOR},
    "join-tokens": {"GET": OPERATOR, "POST": OPERATOR},
    "join-token": {"DELETE": OPERATOR},
    "join-commands": {"POST": OPERATOR},
    "api-tokens": {"GET": OPERATOR, "POST": OPERATOR},
    "api-token": {"DELETE": OPERATOR},
    "audit-list": {"GET": OPERATOR},
    "webhooks": {"GET": OPERATOR, "POST": OPERATOR},
    "webhook": {"GET": OPERATOR, "PATCH": OPERATOR, "DELETE": OPERATOR},
    "webhook-test": {"POST": OPERATOR},
    "blob": {"GET": OWNER},
    "plan-list": {"GET": VIEWER},
    "plan-detail": {"GET": VIEWER},
    "plan-trail": {"GET": VIEWER},
    "plan-current": {"GET": VIEWER, "POST": OPERATOR},
    "control": {"GET": VIEWER, "PATCH": OPERATOR},
    "promises": {"GET": VIEWER},
    "what-ifs": {"GET": VIEWER, "POST": OWNER},
    "what-if": {"GET": VIEWER, "DELETE": OWNER},
    "what-if-apply": {"POST": OPERATOR},
    "history": {"GET": VIEWER},
    "history-applications": {"GET": VIEWER},
    "history-application": {"GET": VIEWER},
    "history-device": {"GET": VIEWER},
    "marks": {"GET": VIEWER, "POST": OPERATOR},
    "mark": {"DELETE": OPERATOR},
    "repairs": {"GET": VIEWER},
    "repair-ignore": {"POST": OPERATOR, "DELETE": OPERATOR},
}

#: fields of a body that need more than the rest of it, unless they stay as they are
FIELDS: dict[str, dict[str, AccessRole]] = {
    "applications": {"weight": OPERATOR, "floor": OPERATOR},
    "application": {"weight": OPERATOR, "floor": OPERATOR},
}

#: least role by name of a page and method
PAGES: dict[str, dict[str, AccessRole]] = {
    "console:login": {"GET": ANYONE, "POST": ANYONE},
    "console:logout": {"POST": ANYONE},
    "console:overview": {"GET": VIEWER},
    "console:applications": {"GET": VIEWER},
    "console:application": {"GET": VIEWER},
    "console:upload": {"GET": OWNER},
    "console:compare": {"GET": VIEWER},
    "console:plan-current": {"GET": VIEWER},
    "console:plans": {"GET": VIEWER},
    "console:plan": {"GET": VIEWER},
    "console:what-if": {"GET": VIEWER},
    "console:promises": {"GET": VIEWER},
    "console:nodes": {"GET": VIEWER},
    "console:repairs": {"GET": VIEWER},
    "console:keys": {"GET": OPERATOR},
    "console:access": {"GET": OPERATOR},
    "console:audit": {"GET": OPERATOR},
    "favicon": {"GET": ANYONE},
    "health": {"GET": ANYONE},
    "authority": {"GET": ANYONE},
    "metrics": {"GET": VIEWER},
}

#: pages of the admin site beside those of models
ADMIN_SITE: dict[str, AccessRole] = {
    "admin:login": ANYONE,
    "admin:logout": ANYONE,
    "admin:index": VIEWER,
    "admin:app_list": VIEWER,
    "admin:jsi18n": VIEWER,
    "admin:password_change": VIEWER,
    "admin:password_change_done": VIEWER,
    "admin:search": VIEWER,
    "admin:autocomplete": OPERATOR,
    "admin:view_on_site": OPERATOR,
    "admin:auth_user_password_change": OPERATOR,
}

#: least role to see and change a model's rows in the admin site
MODELS: dict[str, AccessRole] = {"auth.user": OPERATOR}

#: least role by websocket and message; the first message is the connection itself
BROWSER_SOCKETS: dict[str, dict[str, AccessRole]] = {
    "ws/console/live/": {"connect": VIEWER, "snapshot": VIEWER, "ping": VIEWER}
}

#: addresses that a member reaches with its own credential, beside roles; for its websocket a join token will do
MEMBER_ADDRESSES: dict[str, str] = {"blob": "approved node", "ws/node/": "node", "ws/gateway/": "gateway"}

#: remarks for the documentation
NOTES: dict[str, str] = {
    "health": "whether it works, no more; checks one by one for viewers",
    "authority": "the certificate by which clients and members trust this box",
    "metrics": "also without a token from the box itself (loopback)",
    "application-try": "sends one query, with the key console-… and its limits",
    "repairs": "those about keys and tokens are for operators",
    "console:access": "accounts are made and changed at /admin/auth/user/",
    "admin:auth_user_password_change": "only superusers change superusers",
}


def methods(name: str) -> dict[str, AccessRole]:
    return REST.get(name) or PAGES.get(name) or {}


def least(name: str, method: str) -> AccessRole | None:
    """The least role for a method of a named address; None: nobody may."""
    if name.startswith("admin:"):
        return _admin(name)
    return methods(name).get("GET" if method == "HEAD" else method)


def permits(role: AccessRole, name: str, method: str) -> bool:
    needed = least(name, method)
    return needed is not None and role >= needed


def _admin(name: str) -> AccessRole | None:
    known = ADMIN_SITE.get(name)
    if known is not None:
        return known
    app, _, rest = name.removeprefix("admin:").partition("_")
    model, _, action = rest.rpartition("_")
    return MODELS.get(f"{app}.{model}") if action in ("changelist", "change", "history", "add", "delete") else None
