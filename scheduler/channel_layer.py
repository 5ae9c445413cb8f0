"""The channel layer of web and workers."""

from __future__ import annotations

import asyncio

from channels_redis.core import RedisChannelLayer
from redis.exceptions import RedisError

from scheduler import troubles

#: pause between two tries while Redis does not answer
PAUSE_S = 1.0


class PatientRedisLayer(RedisChannelLayer):
    """Waits while Redis is away, where channels-redis ends each connection that receives.

    Members pull what pushes would have brought, so a connection is worth keeping without Redis.
    """

    async def receive(self, channel: str):
        while True:
            try:
                return await super().receive(channel)
            except (RedisError, OSError) as error:
                troubles.occurred(error)
                await asyncio.sleep(PAUSE_S)
