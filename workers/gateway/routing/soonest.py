"""Which of many devices answers first, without a look at each. Pure; seconds on the caller's clock, counts in rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from itertools import islice

from .outlook import Device


class _Member:
    """A device that may be chosen, its place in the order, and its entry in one of the heaps (None: not there)."""

    __slots__ = ("device", "item", "name", "order")

    def __init__(self, order: int, name: str, device: Device):
        self.order = order
        self.name = name
        self.device = device
        self.item: tuple | None = None


class Soonest:
    """The device that answers first, of some devices that may get an application's queries of ``rows`` rows or more.

    Outlooks are kept in two heaps: by the moment of the answer as long as that is later than what the query takes by
    itself, then by what it takes. A device moves from the first to the second once, and is looked at again when
    something happened to it: a search costs the logarithm of the number of devices, for each event since the last one.

    After a time of many events but few searches not all of these are made up for at once: see :meth:`first`.

    Args:
        rows: the size of query that outlooks are kept for; those of larger ones are at least as far away.
    """

    LOOKS = 8
    """Devices with news that one search looks at, while it finds one that is in time."""

    def __init__(self, application: str, rows: int, devices: Sequence[tuple[str, Device]]):
        self._application = application
        self._rows = rows
        self._members = {device: _Member(order, name, device) for order, (name, device) in enumerate(devices)}
        self._news: dict[Device, None] = dict.fromkeys(self._members)
        self._by_moment: list[tuple[float, int, _Member, float]] = []
        self._by_time: list[tuple[float, int, _Member, float]] = []
        for device in self._members:
            device.watchers.append(self._news)

    def close(self) -> None:
        """Hear of nothing any more."""
        for device in self._members:
            device.watchers[:] = [heard for heard in device.watchers if heard is not self._news]

    def first(self, now: float, latest: float, rows: int, exclude: Collection[str]) -> str | None:
        """The usable device that should answer a query of ``rows`` rows, sent ``now``, first, and by ``latest``; None:
        there is none. Ties go to the first in order.

        Where news of more than :data:`LOOKS` devices came since the last search, it is the first of those that there
        was no news of and of some others; None still means that there is none at all.
        """
        news = self._news
        while True:
            for device in list(islice(news, self.LOOKS)):
                self._look(self._members[device], now)
            found = self._search(now, latest, rows, exclude)
            if found is not None or not news:
                return found

    def _look(self, member: _Member, now: float) -> None:
        device = member.device
        self._news.pop(device, None)
        if not device.usable:
            member.item = None
            return
        at, takes = device.outlook(self._application, self._rows)
        if at > now + takes:
            member.item = (at, member.order, member, takes)
            heappush(self._by_moment, member.item)
        else:
            member.item = (takes, member.order, member, takes)
            heappush(self._by_time, member.item)
        if len(self._by_moment) + len(self._by_time) > 2 * len(self._members) + 64:
            # Entries that do not count any more are dropped where they come up, and those that never do, here.
            for heap in (self._by_moment, self._by_time):
                heap[:] = sorted(item for item in heap if item[2].item is item)

    def _search(self, now: float, latest: float, rows: int, exclude: Collection[str]) -> str | None:
        best, best_at, best_order = None, latest, math.inf
        aside = []
        while (found := self._top(now)) is not None:
            at, order, heap = found
            if at > best_at or (at == best_at and order > best_order):
                break
            item = heap[0]
            member = item[2]
            if rows == self._rows and member.name not in exclude:
                best = member
                break
            aside.append((heap, heappop(heap)))
            if member.name in exclude:
                continue
            moment, takes = member.device.outlook(self._application, rows)
            at = max(moment, now + takes)
            if at < best_at or (at == best_at and order < best_order):
                best, best_at, best_order = member, at, order
        for heap, item in aside:
            heappush(heap, item)
        return best.name if best is not None else None

    def _top(self, now: float) -> tuple[float, int, list] | None:
        """When the first device answers, its place in the order, and the heap that it is on top of; of those without
        news."""
        by_moment, by_time, news = self._by_moment, self._by_time, self._news
        while by_moment:
            item = by_moment[0]
            _, order, member, takes = item
            if member.item is item and member.device not in news:
                if item[0] > now + takes:
                    break
                member.item = (takes, order, member, takes)
                heappush(by_time, member.item)
            heappop(by_moment)
        while by_time and (by_time[0][2].item is not by_time[0] or by_time[0][2].device in news):
            heappop(by_time)
        if by_time and (not by_moment or (now + by_time[0][0], by_time[0][1]) < by_moment[0][:2]):
            return now + by_time[0][0], by_time[0][1], by_time
        return (by_moment[0][0], by_moment[0][1], by_moment) if by_moment else None
