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
from workers.protocol import control, specs

#: what is known is older than this only while the database is away, in seconds
REREAD_S = 3.0
#: seconds that a reader waits for at most, so that reads take no more than half of the time
LONGEST_PAUSE_S = 1.0


#: In threads of their own: with Channels' default all connections share one, and a slow query of one member would
#: make the others look silent.
in_thread = functools.partial(database_sync_to_async, thread_sensitive=False)


class Configurations:
    """Reads that all connections of an event loop share.

    It keeps the configurations that were made from the last read.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._began, self._took_s, self._known_at = -math.inf, 0.0, -math.inf
        self._registered: push.Registered | None = None
        self._made: dict[Hashable, control.NodeConfig | control.GatewayConfig] = {}
        self._planned: dict[int, list[specs.DevicePlan]] = {}

    async def registered(self, since: float | None = None) -> push.Registered:
        """Return the facts that the database held at ``since`` (monotonic) or later.

        Without ``since``: :data:`REREAD_S` ago or later.

        Raises:
            DatabaseError: it cannot be read, and this call was the one to try; the others go on with what is known.
        """
        if since is None:
            since = time.monotonic() - REREAD_S
        if self._registered is not None and self._known_at >= since:
            return self._registered
        async with self._lock:
            if self._registered is None or self._began < since:
                # Members that join one after the other ask for a read each.
                await asyncio.sleep(min(LONGEST_PAUSE_S, self._began + 2 * self._took_s - time.monotonic()))
                self._began = time.monotonic()
                try:
                    found = await in_thread(push.read)()
                finally:
                    self._took_s = time.monotonic() - self._began
                if self._registered is None or found.shared != self._registered.shared:
                    self._made.clear()
                    self._planned = push.planned_by_node(found.shared)
                self._registered, self._known_at = found, self._began
            return self._registered

    async def node(self, pk: int, since: float | None = None) -> control.NodeConfig:
        """The configuration of a node."""
        shared = (await self.registered(since)).shared
        return self._once(("node", pk), lambda: push.node_config(pk, shared, self._planned.get(pk, ())))

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
