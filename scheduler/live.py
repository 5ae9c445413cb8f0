"""The live state in Redis: connections, keys, and the events that browsers follow.

Nothing here is lost for good when Redis restarts: demand is measured again within seconds, plans are in the database.
"""

from __future__ import annotations

import asyncio
import functools
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import redis
import redis.asyncio
from django.conf import settings
from redis.exceptions import RedisError

from registry import clock
from scheduler import troubles

#: pause between two tries to listen while Redis does not answer
LISTEN_AGAIN_S = 1.0
#: how long a task that was cancelled may take before it is cancelled once more
CANCEL_AGAIN_S = 0.2


def key(name: str) -> str:
    return f"{settings.NEREUS.redis_prefix}:{name}"


CONTENT = key("content")
#: the channel of Redis with the events of all browsers
EVENTS = key("events")
#: the channel of Redis that says that something changed which members follow
MEMBERS = key("members_changed")


@functools.cache
def client() -> redis.Redis:
    """This process' client (thread-safe), which connects when first used."""
    return redis.Redis.from_url(settings.REDIS_URL, decode_responses=True, socket_timeout=5)


def content() -> str:
    """A name for what Redis holds: another one once that was emptied or replaced."""
    while True:
        new = uuid.uuid4().hex
        if client().set(CONTENT, new, nx=True):
            return new
        # Redis may be emptied between the two commands.
        if found := client().get(CONTENT):
            return found


def fresh(key: str, within_s: float) -> dict[str, str]:
    """Fields of a hash of stamps that are of the last ``within_s``; older ones are deleted."""
    found = client().hgetall(key)
    old = [field for field, at in found.items() if clock.age(at) > within_s]
    if old:
        client().hdel(key, *old)
    return {field: at for field, at in found.items() if field not in old}


def members_changed() -> None:
    """Have members of all processes follow the database now, not in some seconds."""
    client().publish(MEMBERS, "")


def publish(name: str, data: dict[str, Any]) -> None:
    """Send it to all browsers. One that misses it reads the state on reconnecting."""
    client().publish(EVENTS, dumps({"event": name, "data": data}))


async def publish_async(name: str, data: dict[str, Any]) -> None:
    await asyncio.to_thread(publish, name, data)


async def publish_all(events: list[dict[str, Any]]) -> None:
    if events:
        await asyncio.to_thread(client().publish, EVENTS, dumps(events))


async def listen(channel: str) -> AsyncIterator[str | None]:
    """Yield the messages in a channel of Redis, for ever.

    None comes first, and after each interruption: messages may have been missed until then.
    """
    while True:
        try:
            async with (
                redis.asyncio.Redis.from_url(settings.REDIS_URL, decode_responses=True) as connected,
                connected.pubsub() as pubsub,
            ):
                await pubsub.subscribe(channel)
                async for message in pubsub.listen():
                    yield message["data"] if message["type"] == "message" else None
        except (RedisError, OSError) as error:
            troubles.occurred(error)
            await asyncio.sleep(LISTEN_AGAIN_S)


async def cancel(task: asyncio.Task) -> None:
    """Cancel a task again and again: redis-py loses a cancellation (its issue 2028)."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN_S)


def dumps(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))
