"""Members' configurations, from one read for all connections of a process.

The database is the only source. It is read every :data:`REREAD_S`, and at once when any process says that something
changed (:func:`scheduler.live.members_changed`), so that a word that is lost makes no difference. After each read the
connections compare.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager

from channels.db import database_sync_to_async

from scheduler import live
from scheduler.members import contents
from scheduler.members.loops import per_loop
from scheduler.members.passing import PASSING, noted
from workers import log
from workers.protocol import control, specs

logger = log.get("members")

#: what is known is older than this only while the database is away, in seconds
REREAD_S = 5.0
#: seconds that a reader waits for at most, so that reads take no more than half of the time
LONGEST_PAUSE_S = 1.0

#: In threads of their own: with Channels' default all connections share one, and a slow query of one member would
#: make the others look silent.
in_thread = functools.partial(database_sync_to_async, thread_sensitive=False)


class Configurations:
    """Reads that connections share, and the configurations made of the last one."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._began, self._took_s, self._known_at = -math.inf, 0.0, -math.inf
        self._registered: contents.Registered | None = None
        self._made: dict[Hashable, control.NodeConfig | control.GatewayConfig] = {}
        self._planned: dict[int, list[specs.DevicePlan]] = {}
        self._followers: set[asyncio.Event] = set()
        self._due = asyncio.Event()
        self._watching: list[asyncio.Task] = []

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[asyncio.Event]:
        """Yield an event that is set after each read; the first follower starts them."""
        event = asyncio.Event()
        self._followers.add(event)
        if not self._watching:
            doing = {"watch-registry": self._watch(), "listen-for-changes": self._listen()}
            self._watching = [asyncio.create_task(each, name=name) for name, each in doing.items()]
        try:
            yield event
        finally:
            self._followers.discard(event)
            if not self._followers:
                ended, self._watching = self._watching, []
                for task in ended:
                    await live.cancel(task)

    def look(self) -> None:
        self._due.set()

    async def _watch(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._due.wait(), REREAD_S)
            except TimeoutError:
                pass
            self._due.clear()
            try:
                await self.registered(time.monotonic())
            except PASSING as error:
                noted(error)
                logger.warning("registry_not_read", error=str(error))
            # Also without a read: a certificate may be due, or an operator be waited for.
            for event in self._followers:
                event.set()

    async def _listen(self) -> None:
        async for _ in live.listen(live.MEMBERS):
            self.look()

    async def registered(self, since: float | None = None) -> contents.Registered:
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
                    found = await in_thread(contents.read)()
                finally:
                    self._took_s = time.monotonic() - self._began
                if self._registered is None or found.shared != self._registered.shared:
                    self._made.clear()
                    self._planned = contents.planned_by_node(found.shared)
                self._registered, self._known_at = found, self._began
            return self._registered

    async def node(self, pk: int, since: float | None = None) -> control.NodeConfig:
        shared = (await self.registered(since)).shared
        return self._once(pk, lambda: contents.node_config(pk, shared, self._planned.get(pk, ())))

    async def gateway(self, since: float | None = None) -> control.GatewayConfig:
        shared = (await self.registered(since)).shared
        return self._once("gateway", lambda: contents.gateway_config(shared))

    def _once(self, key: Hashable, make: Callable[[], control.NodeConfig | control.GatewayConfig]):
        if key not in self._made:
            self._made[key] = control.with_hash(make())
        return self._made[key]


configurations = per_loop(Configurations)
