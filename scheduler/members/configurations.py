"""The configuration of each member, from one database read for all connections.

Members pull: each second they report what they hold, and it is compared with what is known here. The database is the
only source, read every :data:`REREAD_S` and at each push, so that no push or counter that is lost makes a difference.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
import weakref
from collections.abc import Callable, Hashable

from channels.db import database_sync_to_async

from scheduler.members import push
from workers.protocol import control

#: In threads of their own: with Channels' default all connections share one, and a slow query of one member would
#: make the others look silent.
in_thread = functools.partial(database_sync_to_async, thread_sensitive=False)

#: what is known is older than this only while the database is away, in seconds
REREAD_S = 3.0


class Configurations:
    """Reads that all connections of an event loop share.

    It keeps the configurations that were made from the last read.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._began = -math.inf
        self._registered: push.Registered | None = None
        self._made: dict[Hashable, control.NodeConfig | control.GatewayConfig] = {}

    async def registered(self, since: float | None = None) -> push.Registered:
        """Return the facts that the database held at ``since`` (monotonic) or later.

        Without ``since``: :data:`REREAD_S` ago or later.

        Raises:
            DatabaseError: it cannot be read, and this call was the one to try; the others go on with what is known.
        """
        if since is None:
            since = time.monotonic() - REREAD_S
        async with self._lock:
            if self._registered is None or self._began < since:
                self._began = time.monotonic()
                found = await in_thread(push.read)()
                if self._registered is None or found.shared != self._registered.shared:
                    self._made.clear()
                self._registered = found
            return self._registered

    async def node(self, pk: int, since: float | None = None) -> control.NodeConfig:
        """The configuration of a node."""
        shared = (await self.registered(since)).shared
        return self._once(("node", pk), lambda: push.node_config(pk, shared))

    async def gateway(self, gateways: int, since: float | None = None) -> control.GatewayConfig:
        """The configuration of one of ``count`` gateways."""
        shared = (await self.registered(since)).shared
        return self._once(("gateway", gateways), lambda: push.gateway_config(shared, gateways))

    def _once(self, key: Hashable, make: Callable[[], control.NodeConfig | control.GatewayConfig]):
        if key not in self._made:
            self._made[key] = control.with_hash(make())
        return self._made[key]


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Configurations] = weakref.WeakKeyDictionary()


def configurations() -> Configurations:
    """Return the running loop's configurations."""
    return _by_loop.setdefault(asyncio.get_running_loop(), Configurations())
