"""Liveness of the web process: middleware answers while the event loop runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

PATH = "/health/live"


class AliveCheck:
    """Answers GET /health/live by itself, without database and Redis."""

    def __init__(self, app: Callable[..., Awaitable[None]]):
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        if scope["path"] != PATH:
            return await self._app(scope, receive, send)
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"alive"})
