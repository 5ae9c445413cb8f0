"""Limits on the rate of requests, counted in the web process's memory."""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from typing import Any

from django.utils import timezone
from rest_framework.throttling import SimpleRateThrottle, UserRateThrottle

#: an address from which somebody signed in so recently is not a stranger's
KNOWN_FOR = timedelta(days=90)


def address(request: Any) -> str:
    """The caller's address, by forwarding headers of trusted proxies alone."""
    return request.META.get("REMOTE_ADDR") or "unknown"


def loopback(request: Any) -> bool:
    """Whether the caller is on this box, and not behind a proxy here."""
    try:
        return ipaddress.ip_address(address(request)).is_loopback
    except ValueError:
        return False


class _ByAddress(SimpleRateThrottle):
    def get_cache_key(self, request: Any, view: Any) -> str:
        return f"throttle_{self.scope}_{_network(address(request))}"


def _network(text: str) -> str:
    """An address as one caller: of IPv6 its /64, which one host usually has."""
    try:
        known = ipaddress.ip_address(text)
    except ValueError:
        return text
    return str(ipaddress.ip_network((known, 64), strict=False)) if known.version == 6 else text


class StrangerThrottle(_ByAddress):
    scope = "stranger"
    rate = "120/min"


class AccountThrottle(UserRateThrottle):
    scope = "account"
    rate = "6000/min"

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        user = request.user
        return f"throttle_{self.scope}_{user.pk}" if getattr(user, "pk", None) is not None else None


class SignInThrottle(_ByAddress):
    scope = "sign_in"
    rate = "10/min"


class StrangersSignInThrottle(SimpleRateThrottle):
    """Attempts to sign in from all addresses from which nobody has signed in."""

    scope = "strangers_sign_in"
    rate = "30/min"

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        return None if loopback(request) or _known(request) else f"throttle_{self.scope}"


def _known(request: Any) -> bool:
    from registry.audit.entries import AuditEntry
    from registry.audit.signing import SIGNED_IN

    since = timezone.now() - KNOWN_FOR
    return AuditEntry.objects.filter(action=SIGNED_IN, address=address(request), at__gt=since).exists()


def sign_in_wait_s(request: Any) -> float | None:
    """Seconds until the caller may try to sign in again; None: now, and counted."""
    for throttle in (SignInThrottle(), StrangersSignInThrottle()):
        if not throttle.allow_request(request, None):
            return throttle.wait() or 60.0
    return None
