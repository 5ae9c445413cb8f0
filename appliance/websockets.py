"""ASGI middleware of all websockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError

from workers import log

logger = log.get("websockets")

#: "try again later" (IANA's registry of close codes)
CLOSE_TRY_AGAIN = 1013


class CloseWithoutRedis:
    """ASGI middleware: a websocket that loses Redis is closed with a code for it, and one line is logged; members
    and browsers reconnect by themselves."""

    def __init__(self, app: Callable[..., Awaitable[None]]):
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        try:
            await self._app(scope, receive, send)
        except (RedisError, ConnectionError) as error:
            logger.warning("redis_away", path=scope["path"], error=f"{type(error).__name__}: {error}")
            try:
                await send({"type": "websocket.close", "code": CLOSE_TRY_AGAIN, "reason": "Redis is away"})
            except Exception as closed:
                logger.debug("already_closed", error=str(closed))
