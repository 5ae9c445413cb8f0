"""Work that all connections of a process have every second, done at once for all.

A query, a command or a broadcast for each member costs more than all else that the control plane does for it. Work that
connections put here is stored together, a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from registry.models import Gateway, Node
from scheduler import live, presence, telemetry, troubles
from scheduler.control import upkeep
from scheduler.members import standing
from scheduler.members.configurations import in_thread
from scheduler.members.loops import per_loop
from scheduler.members.passing import PASSING, Losses, noted

#: seconds for which members that were seen, and their seconds of statistics, are gathered
SEEN_S, SECONDS_S = 0.5, 0.2
#: seconds for which members and devices that come are gathered: after a mass join a plan for each few of them would
#: move models again and again. The first plan of an appliance waits for no other device
CAME_S, FIRST_CAME_S = 1.0, 0.1
#: seconds of statistics that browsers get in one message: each message costs more than what is in it
EVENTS_S = 1.0

#: kind, id and channel of a member that sent something
Seen = tuple[type[Node] | type[Gateway], int, str]


class MemberSecond(NamedTuple):
    """A member's second of statistics: the event for browsers, the entry that is stored, the node that sent it, when.

    Without ``data`` the member only reports that it is there.
    """

    event: str = ""
    data: dict[str, Any] | None = None
    entry: telemetry.StreamEntry | None = None
    node: int | None = None
    stamp: str = ""


class Batch:
    """Items that are stored together, ``every_s`` after the first of them came.

    That one may say sooner. Failures that pass lose the items.
    """

    def __init__(self, what: str, store: Callable[[list], Awaitable[None]], every_s: float) -> None:
        self._what, self._store, self._every_s = what, store, every_s
        self._waiting: list = []
        self._running: asyncio.Task | None = None
        self._storing = asyncio.Lock()
        self._losses = Losses()

    def put(self, item: Any, within_s: float | None = None) -> None:
        self._waiting.append(item)
        if self._running is None or self._running.done():
            every_s = self._every_s if within_s is None else within_s
            self._running = asyncio.create_task(self._run(every_s), name=f"batch-{self._what}")

    async def forget(self, item: Any) -> None:
        """Return once the item is stored, or never will be."""
        self._waiting = [other for other in self._waiting if other != item]
        async with self._storing:
            pass

    async def _run(self, every_s: float) -> None:
        while self._waiting:
            await asyncio.sleep(every_s)
            async with self._storing:
                items, self._waiting = self._waiting, []
                try:
                    await self._store(items)
                except PASSING as error:
                    noted(error)
                    self._losses.log(self._what, f"{len(items)} members", f"{type(error).__name__}: {error}")


class Batches:
    """Those of an event loop.

    ``came`` has lists of devices that came up; an empty one is a member that joined, whose devices plans may have left
    out.
    """

    def __init__(self) -> None:
        self.seen = Batch("seen", _store_seen, SEEN_S)
        self.seconds = Batch("statistics", _store_seconds, SECONDS_S)
        self.events = Batch("live seconds", _tell, EVENTS_S)
        self.came = Batch("devices that came", _plan_with, CAME_S)


async def _store_seen(items: list[Seen]) -> None:
    await in_thread(standing.seen_all)(items)
    troubles.over(troubles.DATABASE)
    troubles.over(troubles.REDIS)


async def _store_seconds(items: list[MemberSecond]) -> None:
    await asyncio.to_thread(_store_in_redis, items)
    for second in items:
        if second.data is not None:
            batches().events.put((second.event, second.data))


def _store_in_redis(items: list[MemberSecond]) -> None:
    if heard := {second.node: second.stamp for second in items if second.node is not None}:
        presence.reported(heard)
    if entries := [second.entry for second in items if second.entry is not None]:
        telemetry.record_all(entries)


async def _tell(items: list[tuple[str, dict[str, Any]]]) -> None:
    await live.publish_all([{"event": event, "data": data} for event, data in items])


async def _plan_with(items: list[Sequence[str]]) -> None:
    await in_thread(upkeep.plan_with)([device for devices in items for device in devices])


batches = per_loop(Batches)
