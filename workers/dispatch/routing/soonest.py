"""Which of many devices answers first, without a look at each. Pure; seconds on the caller's clock, counts in rows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from heapq import heappop, heappush

from .outlook import Device

#: entries in a heap that may be out of date, beside one for each device, before they are dropped all at once
_OUT_OF_DATE = 1024


class Member:
    """A device that may be chosen.

    Attributes:
        item: its entry in one of the heaps (None: in neither); other entries of it are out of date.
        sooner: something happened to it, so that it may answer sooner than its entry says; it is in ``news``.
        later: something happened to it, so that it answers later, if anything.
    """

    __slots__ = ("device", "item", "later", "name", "news", "order", "sooner")

    def __init__(self, order: int, name: str, device: Device, news: deque[Member]):
        self.order = order
        self.name = name
        self.device = device
        self.item: tuple | None = None
        self.news = news
        self.sooner = self.later = False
        device.watchers.append(self)
        self.may_be_sooner()

    def may_be_sooner(self) -> None:
        """Something happened; at every change of the device but those that are :meth:`only_later`."""
        if not self.sooner:
            self.sooner = True
            self.news.append(self)

    def only_later(self) -> None:
        """Something happened that can only put off answers: nothing needs be done before this device seems to be
        first."""
        self.later = True


class Soonest:
    """The device that answers first, of some devices that may get an application's queries of ``rows`` rows or more.

    Outlooks are kept in two heaps: by the moment of the answer as long as that is later than what the query takes by
    itself, then by what it takes. A device moves from the first to the second once, and is looked at again when
    something happened to it: a search costs the logarithm of the number of devices, for each event since the last one.

    After a time of many events and few searches not all of these are made up for at once: see :meth:`first`.

    Args:
        rows: the size of query that outlooks are kept for; those of larger ones are at least as far away.
    """

    LOOKS = 8
    """Devices with news that one search looks at, while it finds one that is in time."""

    def __init__(self, application: str, rows: int, devices: Sequence[tuple[str, Device]]):
        self._application = application
        self._rows = rows
        self._news: deque[Member] = deque()
        self._members = [Member(order, name, device, self._news) for order, (name, device) in enumerate(devices)]
        self._by_moment: list[tuple[float, int, Member, float]] = []
        self._by_time: list[tuple[float, int, Member, float]] = []

    def close(self) -> None:
        """Hear of nothing any more."""
        for member in self._members:
            member.device.watchers.remove(member)

    def first(self, now: float, latest: float, rows: int, exclude: Collection[str]) -> str | None:
        """The usable device that should answer a query of ``rows`` rows, sent ``now``, first, and by ``latest``; None:
        there is none. Ties go to the first in order.

        Where news of more than :data:`LOOKS` devices came since the last search, it is the first of those that there
        was no news of and of some others; None still means that there is none at all.
        """
        news = self._news
        while True:
            for _ in range(min(len(news), self.LOOKS)):
                self._look(news.popleft(), now)
            found = self._search(now, latest, rows, exclude)
            if found is not None or not news:
                return found

    def _look(self, member: Member, now: float) -> None:
        member.sooner = member.later = False
        device = member.device
        if not device.usable:
            member.item = None
            return
        at, takes = device.outlook(self._application, self._rows)
        if at > now + takes:
            item = member.item = (at, member.order, member, takes)
            heap = self._by_moment
        else:
            item = member.item = (takes, member.order, member, takes)
            heap = self._by_time
        self._keep(heap, item)

    def _keep(self, heap: list[tuple[float, int, Member, float]], item: tuple[float, int, Member, float]) -> None:
        heappush(heap, item)
        if len(heap) > 2 * len(self._members) + _OUT_OF_DATE:
            # Entries that do not count any more are dropped where they come up, and those that never do, here.
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
        by_moment, by_time = self._by_moment, self._by_time
        while by_moment:
            item = by_moment[0]
            _, order, member, takes = item
            if member.item is item and not member.sooner:
                if member.later:
                    self._look(member, now)
                    continue
                if item[0] > now + takes:
                    break
                member.item = (takes, order, member, takes)
                self._keep(by_time, member.item)
            heappop(by_moment)
        while by_time:
            item = by_time[0]
            member = item[2]
            if member.item is item and not member.sooner:
                if not member.later:
                    break
                self._look(member, now)
                continue
            heappop(by_time)
        if by_time and (not by_moment or (now + by_time[0][0], by_time[0][1]) < by_moment[0][:2]):
            return now + by_time[0][0], by_time[0][1], by_time
        return (by_moment[0][0], by_moment[0][1], by_moment) if by_moment else None
