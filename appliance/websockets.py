"""ASGI middleware of all websockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import validate_host


class SameOrigin:
    """Accepts websockets from pages of this console alone, by their origin."""

    def __init__(self, app: Callable[..., Awaitable[None]]):
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        headers = dict(scope["headers"])
        if self._permitted(headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")):
            await self._app(scope, receive, send)
        else:
            await WebsocketDenier()(scope, receive, send)

    def _permitted(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            name, port = parts.hostname or "", parts.port or {"https": 443}.get(parts.scheme, 80)
            own = urlsplit(f"//{host}")
            own_port = own.port or {"https": 443}.get(parts.scheme, 80)
        except ValueError:
            return False
        if origin in settings.CSRF_TRUSTED_ORIGINS:
            return True
        same = (name, port) == (own.hostname or "", own_port)
        return same and bool(name) and validate_host(name, settings.ALLOWED_HOSTS)
