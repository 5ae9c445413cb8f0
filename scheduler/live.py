"""The live state in Redis: connections, keys, and the events that browsers follow.

Nothing here is lost for good when Redis restarts: demand is measured again within seconds, plans are in the database.
"""

from __future__ import annotations

import functools
import json
import uuid
from typing import Any

import redis
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings

#: the channel-layer group of all browsers on a live page
CONSOLE_GROUP = "console"


def key(name: str) -> str:
    """The name of one of this appliance's keys; others may share the Redis."""
    return f"{settings.NEREUS.redis_prefix}:{name}"


CONTENT = key("content")


@functools.cache
def client() -> redis.Redis:
    """Return this process' Redis client (thread-safe).

    It connects when first used, and again after a restart.
    """
    return redis.Redis.from_url(settings.REDIS_URL, decode_responses=True, socket_timeout=5)


def content() -> str:
    """Return a name for what Redis holds.

    It is another one once Redis was emptied or replaced, and all groups with it.
    """
    while True:
        new = uuid.uuid4().hex
        if client().set(CONTENT, new, nx=True):
            return new
        # Redis may be emptied between the two commands.
        if found := client().get(CONTENT):
            return found


def event(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """An event as browsers' consumers receive it through the channel layer."""
    return {"type": "live.event", "event": name, "data": data}


def publish(name: str, data: dict[str, Any]) -> None:
    """Send an event to all browsers, from synchronous code.

    One that misses it reads the state on reconnecting.
    """
    async_to_sync(get_channel_layer().group_send)(CONSOLE_GROUP, event(name, data))


async def publish_all(events: list[dict[str, Any]]) -> None:
    """Send events, each an ``{"event", "data"}``, to all browsers in one message."""
    if events:
        await get_channel_layer().group_send(CONSOLE_GROUP, {"type": "live.events", "events": events})


async def publish_async(name: str, data: dict[str, Any]) -> None:
    """As :func:`publish`, from a consumer."""
    await get_channel_layer().group_send(CONSOLE_GROUP, event(name, data))


def dumps(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))
