"""The channel layer of web and workers."""

from __future__ import annotations

import asyncio

from channels_redis.core import RedisChannelLayer
from redis.exceptions import RedisError

from scheduler import troubles

#: pause between two tries while Redis does not answer
PAUSE_S = 1.0
#: how long a cancelled receive may take before it is cancelled once more
CANCEL_AGAIN_S = 0.2


class PatientRedisLayer(RedisChannelLayer):
    """A channel layer that waits while Redis is away.

    channels-redis alone would end each connection that receives. Members pull what pushes would have brought, so a
    connection is worth keeping without Redis.
    """

    async def receive(self, channel: str):
        while True:
            receiving = asyncio.ensure_future(super().receive(channel))
            try:
                return await asyncio.shield(receiving)
            except asyncio.CancelledError:
                await cancel(receiving)
                raise
            except (RedisError, OSError) as error:
                troubles.occurred(error)
                await asyncio.sleep(PAUSE_S)


async def cancel(task: asyncio.Task) -> None:
    """Cancel a task that uses Redis again and again until that takes effect.

    redis-py loses a cancellation now and then (its issue 2028).
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
