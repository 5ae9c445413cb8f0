"""The channel layer on a real Redis."""

from __future__ import annotations

import asyncio

from channels.layers import channel_layers


async def test_a_cancelled_receive_ends(clean_redis):
    """A cancelled receive ends, also where the Redis client loses the cancellation.

    The client does so on new connections.
    """
    for pause_ms in range(12):
        layer = channel_layers.make_backend("default")
        receiving = asyncio.create_task(layer.receive(await layer.new_channel()))
        await asyncio.sleep(pause_ms / 1000)
        receiving.cancel()
        await asyncio.wait([receiving], timeout=60)
        assert receiving.cancelled()
        await layer.close_pools()
