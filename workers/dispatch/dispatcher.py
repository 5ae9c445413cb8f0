"""Late binding: queries wait in the gateway, booked on devices, and are granted in batches just in time. Pure.

The dispatcher holds every query until a device is about to run it. On arrival a query is *booked*: it joins a batch
that is still being formed, or opens a new one on the device and with the variant of the highest value (see
:mod:`.menu`) that can still answer it in time behind everything booked there before. So what is accepted has its
time on a device, bursts step down in accuracy before they are late, and whatever becomes possible later (a better
device idle, time for a more accurate variant) is taken when the batch starts: nothing is bound before it must be.

All is event-driven and without I/O: the caller tells of arrivals, answers and plans, takes the grants and the refused
queries that result (:attr:`Dispatcher.grants`, :attr:`Dispatcher.refused`), and calls :meth:`Dispatcher.wake` when
:attr:`Dispatcher.wake_at` has come. Identical calls give identical decisions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from heapq import heappop, heappush

from .devices import Batch, Device, Query
from .menu import LEVELS, Menu, Option

#: an answer may be this much after its deadline and still count as in time: rounding
ROUNDING_S = 1e-9
#: how long a batch that may still grow waits on an idle device: of the time that its first query can spare at all, this
#: part while nothing else is booked, and so much more at full pressure
WAIT, WAIT_UNDER_PRESSURE = 0.3, 0.7
#: an application with at most so many devices is not to be left without one that could take its next query
FEW_HOSTS = 12
#: a device whose answers are later than by this part of their time, and by this many seconds, may be stuck; it is
#: expected to need so many seconds more, again and again
OVERDUE, OVERDUE_S = 0.25, 0.005
#: devices that an idle one looks at for work to take over
STEAL_LOOKS = 8


class Group:
    """The devices that offer an application the same menu."""

    __slots__ = ("devices", "menu")

    def __init__(self, menu: Menu) -> None:
        self.menu = menu
        self.devices: list[Device] = []


class Application:
    """``open``: its batches that may still grow. ``serve_late``: late queries are answered rather than refused.
    ``hosts``: where it has few, its devices, with the seconds after which a query that has just arrived must start
    there."""

    __slots__ = ("best_worth", "groups", "hosts", "name", "open", "serve_late", "slo_s")

    def __init__(self, name: str, slo_s: float, serve_late: bool = False) -> None:
        self.name = name
        self.slo_s = slo_s
        self.serve_late = serve_late
        self.groups: list[Group] = []
        self.hosts: list[tuple[Device, float]] = []
        self.open: list[Batch] = []
        self.best_worth = -math.inf


class Dispatcher:
    """Books queries on devices and grants batches.

    ``grants``: batches to send now, each to its ``device.name``; ``refused``: queries that no device can answer in
    time. The caller empties both after every call. Each query given to :meth:`submit` is granted or refused exactly
    once, unless it is withdrawn or comes back by :meth:`lost` or :meth:`declined`, which book it again.
    """

    def __init__(self) -> None:
        self.grants: list[Batch] = []
        self.refused: list[Query] = []
        self._applications: dict[str, Application] = {}
        self._devices: dict[Hashable, Device] = {}
        self._wakes: list[tuple[float, int, Device]] = []
        self._number = 0
        #: devices on which something is booked behind something granted
        self._behind: dict[Device, None] = {}

    # --- what the plan says ------------------------------------------------------------------------------------------

    def set_applications(self, applications: Mapping[str, tuple[float, bool]], now: float) -> None:
        """(SLO in seconds, whether late queries are served) by name. What is booked for others is refused."""
        for name in [name for name in self._applications if name not in applications]:
            gone = self._applications.pop(name)
            for device in self._devices.values():
                for batch in [batch for batch in device.booked if batch.application is gone]:
                    self._unbook(batch)
                    self._refuse_all(batch.queries)
        for name, (slo_s, serve_late) in applications.items():
            known = self._applications.get(name)
            if known is None:
                self._applications[name] = Application(name, slo_s, serve_late)
            else:
                known.slo_s, known.serve_late = slo_s, serve_late
        self._regroup()

    def set_menus(self, device: Hashable, menus: Mapping[str, Menu], now: float) -> None:
        """What the device can run now, by application. What is booked there and no longer possible is booked anew."""
        known = self._device(device)
        if {name: menu.key for name, menu in known.menus.items()} == {name: menu.key for name, menu in menus.items()}:
            return
        known.menus = dict(menus)
        self._regroup()
        moved = []
        for batch in list(known.booked):
            menu = menus.get(batch.application.name)
            option = None if menu is None else next((o for o in menu.options if o.key == batch.option.key), None)
            if option is None:
                self._unbook(batch)
                moved += batch.queries
        self._book_again(moved, now)
        self._consider(known, now)

    def set_up(self, device: Hashable, up: bool, now: float) -> None:
        """Whether the device takes queries. What is booked on one that does not is booked elsewhere."""
        known = self._device(device)
        if known.up == up:
            return
        known.up = up
        self._regroup()
        if not up:
            self._take_back(known, now)

    def set_away(self, device: Hashable, until: float, now: float) -> None:
        """The device does something of its own until then; batches booked on it start later, or elsewhere."""
        known = self._device(device)
        known.away = until > now
        known.free_at = max([until, *(batch.end for batch in known.granted)])
        self._check(known, now)
        self._consider(known, now)

    def set_busy(self, device: Hashable, until: float, now: float) -> None:
        """Somebody else's work holds the device until then, as its executor reports; of what was granted here the
        dispatcher knows better itself, and pays no heed."""
        known = self._device(device)
        if not known.granted and not known.away and until > known.free_at:
            known.free_at = until
            self._check(known, now)
            self._consider(known, now)

    def set_way(self, device: Hashable, way_s: float) -> None:
        """How long the way to the device and back takes."""
        self._device(device).way_s = way_s

    # --- queries -----------------------------------------------------------------------------------------------------

    def submit(self, application: str, query: Query, now: float) -> None:
        """A query that arrived. It ends up in a batch of :attr:`grants`, now or later, or in :attr:`refused`."""
        known = self._applications.get(application)
        if known is None:
            self._refuse_all([query])
        else:
            self._place(known, query, now)

    def withdraw(self, query: Query, now: float) -> bool:
        """Forget a query that waits; False if it does not (any more)."""
        batch: Batch | None = query.booking
        if batch is None or batch.granted:
            return False
        query.booking = None
        if len(batch.queries) == 1:
            self._unbook(batch)
        else:
            batch.queries.remove(query)
            batch.rows -= query.rows
            batch.deadline = min(other.deadline for other in batch.queries)
            batch.device.recount()
        self._consider(batch.device, now)
        return True

    def ended(self, batch: Batch, now: float, run_s: float | None = None) -> None:
        """A granted batch is answered. ``run_s``: what its run took; None: not known, or it failed."""
        device = batch.device
        if batch not in device.granted:
            return
        device.granted.remove(batch)
        if run_s is not None:
            device.noise.observe(run_s / batch.option.seconds(batch.rows))
            if device.noise.factor != device.factor:
                device.factor = device.noise.factor
                device.recount()
        if not device.granted and not device.away:
            device.free_at = now
        elif device.granted:
            # What it was granted meanwhile has just begun, whatever was expected.
            end = now
            for other in device.granted:
                end += device.seconds(other.option, other.rows)
                other.end = end
            device.free_at = end
        if device.booked:
            self._check(device, now)
            self._consider(device, now)
        elif not device.granted:
            self._behind.pop(device, None)
            self._steal(device, now)

    def declined(self, queries: Iterable[Query], now: float) -> None:
        """Queries of a granted batch that the device gave back; they are booked again, as far as their time lasts."""
        self._book_again(list(queries), now)

    def lost(self, device: Hashable, now: float) -> None:
        """The device is gone with all that it was granted; :meth:`declined` brings back what the caller still wants."""
        known = self._device(device)
        known.granted.clear()
        known.free_at = now
        self.set_up(device, False, now)

    def pressure(self, application: str, now: float) -> float:
        """The part of its SLO for which an application's devices are booked (0 to 1); 1 where it has none."""
        known = self._applications[application]
        slo_s, total, count = known.slo_s, 0.0, 0
        for group in known.groups:
            for device in group.devices:
                if not device.away:
                    wait = max(device.free_at - now, 0.0) + device.booked_s
                    total += min(wait, slo_s)
                    count += 1
        return total / (count * slo_s) if count else 1.0

    def booked(self, device: Hashable) -> int:
        """Queries booked on the device and not granted yet."""
        return sum(len(batch.queries) for batch in self._device(device).booked)

    # --- time --------------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When :meth:`wake` is due (inf: only after something else happened)."""
        wakes = self._wakes
        while wakes and wakes[0][2].wake_at != wakes[0][0]:
            heappop(wakes)
        return wakes[0][0] if wakes else math.inf

    def wake(self, now: float) -> None:
        """Start what has waited long enough."""
        while self.wake_at <= now:
            device = heappop(self._wakes)[2]
            device.wake_at = math.inf
            if device.booked and device.granted and self._overdue(device, now):
                # Its answers are late, nobody knows by how much: what can go elsewhere goes in time.
                device.free_at = now + OVERDUE_S
                self._check(device, now)
            self._consider(device, now)

    @staticmethod
    def _overdue(device: Device, now: float) -> bool:
        first = device.granted[0]
        return now > first.end + max(OVERDUE_S, OVERDUE * (first.end - first.granted_at))

    def _wake_at(self, device: Device, when: float) -> None:
        if device.wake_at != when:
            device.wake_at = when
            if when < math.inf:
                self._number += 1
                heappush(self._wakes, (when, self._number, device))

    # --- booking -----------------------------------------------------------------------------------------------------

    def _place(self, application: Application, query: Query, now: float) -> None:
        rows, deadline = query.rows, query.deadline + ROUNDING_S
        joined: Batch | None = None
        worth = -math.inf
        for batch in application.open:
            if batch.option.worth > worth and self._can_join(batch, rows, deadline, now):
                joined, worth = batch, batch.option.worth
        if worth < application.best_worth and self._open(application, query, now, deadline, worth):
            return
        if joined is not None:
            self._join(joined, query, now)
        elif not self._squeeze(application, query, now, deadline):
            if application.serve_late and query.deadline < math.inf and application.groups:
                query.deadline = math.inf
                self._place(application, query, now)
            else:
                self._refuse_all([query])

    def _can_join(self, batch: Batch, rows: int, deadline: float, now: float) -> bool:
        grown = batch.rows + rows
        option = batch.option
        if grown > option.max_rows:
            return False
        device = batch.device
        if deadline > batch.deadline + ROUNDING_S:
            deadline = batch.deadline + ROUNDING_S
        wait = device.free_at - now
        end = now + (wait if wait > device.way_s else device.way_s)
        booked = device.booked
        if len(booked) == 1:
            return end + option.seconds(grown) * device.factor <= deadline
        more, behind = 0.0, False
        for other in booked:
            if other is batch:
                before = option.seconds(batch.rows) * device.factor
                more = option.seconds(grown) * device.factor - before
                end += before
                if end + more > deadline:
                    return False
                behind = True
            else:
                end += other.option.seconds(other.rows) * device.factor
                if behind and end + more > other.deadline + ROUNDING_S:
                    return False
        return True

    def _join(self, batch: Batch, query: Query, now: float) -> None:
        device = batch.device
        query.booking = batch
        batch.queries.append(query)
        batch.rows += query.rows
        if query.deadline < batch.deadline:
            batch.deadline = query.deadline
        if batch.rows >= batch.option.max_rows:
            batch.application.open.remove(batch)
        device.recount()
        self._consider(device, now)

    def _open(self, application: Application, query: Query, now: float, deadline: float, above: float) -> bool:
        """Open a batch of more worth than ``above``; False where none would be in time."""
        rows, slo_s = query.rows, application.slo_s
        heads = []
        for group in application.groups:
            best, soonest, total, count = None, math.inf, 0.0, 0
            for device in group.devices:
                wait = device.free_at - now
                way = device.way_s
                if wait < way:
                    wait = way
                wait += device.booked_s
                if wait < soonest:
                    best, soonest = device, wait
                if not device.away:
                    count += 1
                    wait -= way
                    total += wait if wait < slo_s else slo_s
            if best is not None and now + soonest <= deadline:
                level = int(total / (count * slo_s) * LEVELS) if count else LEVELS
                ranked = group.menu.ranked(level if level < LEVELS else LEVELS - 1)
                heads.append([ranked[0][0], 0, ranked, best, now + soonest, group])
        fallback = None
        while heads:
            head = heads[0]
            for other in heads:
                if other[0] > head[0]:
                    head = other
            value, i, ranked, device, start, group = head
            if value <= above:
                break
            option = ranked[i][1]
            if option.worth > above:
                seconds = option.seconds(rows) * device.factor
                if start + seconds <= deadline:
                    if device.claims and self._robs(application, device, seconds, now):
                        if fallback is None:
                            fallback = option, device
                        device = self._harmless(application, group, option, rows, deadline, now)
                    if device is not None:
                        self._book(Batch(application, option, device, query), len(device.booked), now)
                        return True
            i += 1
            if i == len(ranked):
                heads.remove(head)
            else:
                head[0], head[1] = ranked[i][0], i
        if fallback is None:
            return False
        option, device = fallback
        self._book(Batch(application, option, device, query), len(device.booked), now)
        return True

    def _robs(self, application: Application, device: Device, seconds: float, now: float) -> bool:
        """Whether so much more work on the device leaves another application without a device that could still take
        its next query in time."""
        wait = device.starts_in(now) + device.booked_s
        for other, limit_s in device.claims:
            if other is application or wait > limit_s or wait + seconds <= limit_s:
                continue
            for host, its_limit_s in other.hosts:
                if host is not device and host.starts_in(now) + host.booked_s <= its_limit_s:
                    break
            else:
                return True
        return False

    def _harmless(
        self, application: Application, group: Group, option: Option, rows: int, deadline: float, now: float
    ) -> Device | None:
        """The device of the group that could start first without robbing another application; None: there is none."""
        best, soonest = None, math.inf
        for device in group.devices:
            wait = device.starts_in(now) + device.booked_s
            seconds = device.seconds(option, rows)
            if wait >= soonest or now + wait + seconds > deadline:
                continue
            if not (device.claims and self._robs(application, device, seconds, now)):
                best, soonest = device, wait
        return best

    def _book(self, batch: Batch, position: int, now: float) -> None:
        device = batch.device
        for query in batch.queries:
            query.booking = batch
        device.booked.insert(position, batch)
        device.recount()
        if device.granted or len(device.booked) > 1:
            self._behind[device] = None
        if batch.rows < batch.option.max_rows:
            batch.application.open.append(batch)
        self._consider(device, now)

    def _unbook(self, batch: Batch) -> None:
        device = batch.device
        device.booked.remove(batch)
        device.recount()
        if batch in batch.application.open:
            batch.application.open.remove(batch)

    def _squeeze(self, application: Application, query: Query, now: float, deadline: float) -> bool:
        """Find a place in front of what can wait, or by running what is booked on quicker variants."""
        rows = query.rows
        for group in application.groups:
            for device in group.devices:
                if not device.booked:
                    continue
                start = now + device.starts_in(now)
                slack = device.slack(0, now)
                for option in group.menu.options:
                    seconds = device.seconds(option, rows)
                    if seconds <= slack + ROUNDING_S and start + seconds <= deadline:
                        self._book(Batch(application, option, device, query), 0, now)
                        return True
        for group in application.groups:
            for device in group.devices:
                if device.booked and self._speed_up(device, application, group.menu, query, now, deadline):
                    return True
        return False

    def _speed_up(
        self, device: Device, application: Application, menu: Menu, query: Query, now: float, deadline: float
    ) -> bool:
        """Put the query behind what is booked if quicker variants of that make it possible, and then the least
        accurate one for each that is quickest for its rows."""
        faster = []
        end = now + device.starts_in(now)
        for batch in device.booked:
            options = [o for o in device.menus[batch.application.name].options if o.max_rows >= batch.rows]
            option = min(options, key=lambda o: o.seconds(batch.rows), default=batch.option)
            if option.seconds(batch.rows) >= batch.option.seconds(batch.rows):
                option = batch.option
            faster.append(option)
            end += device.seconds(option, batch.rows)
        for option in menu.options:
            if end + device.seconds(option, query.rows) <= deadline:
                for batch, instead in zip(device.booked, faster, strict=True):
                    batch.option = instead
                    if batch.rows >= instead.max_rows and batch in batch.application.open:
                        batch.application.open.remove(batch)
                self._book(Batch(application, option, device, query), len(device.booked), now)
                return True
        return False

    def _take_back(self, device: Device, now: float) -> None:
        moved = []
        for batch in list(device.booked):
            self._unbook(batch)
            moved += batch.queries
        self._behind.pop(device, None)
        self._wake_at(device, math.inf)
        self._book_again(moved, now)

    def _book_again(self, queries: list[Query], now: float) -> None:
        for query in sorted(queries, key=lambda query: query.deadline):
            application = self._applications.get(query.booking.application.name) if query.booking else None
            query.booking = None
            if application is None:
                self._refuse_all([query])
            else:
                self._place(application, query, now)

    def _check(self, device: Device, now: float) -> None:
        """After a delay: run what would be late on quicker variants, or book it elsewhere."""
        end = now + device.starts_in(now)
        moved: list[Query] = []
        for batch in list(device.booked):
            seconds = device.seconds(batch.option, batch.rows)
            if end + seconds > batch.deadline + ROUNDING_S:
                menu = device.menus.get(batch.application.name)
                within = batch.deadline + ROUNDING_S - end
                option = menu.best(batch.rows, len(batch.queries), within, device.factor, 0) if menu else None
                if option is None:
                    self._unbook(batch)
                    moved += batch.queries
                    continue
                batch.option = option
                if batch.rows >= option.max_rows and batch in batch.application.open:
                    batch.application.open.remove(batch)
                seconds = device.seconds(option, batch.rows)
            end += seconds
        device.recount()
        self._book_again(moved, now)

    def _steal(self, device: Device, now: float) -> None:
        """An idle device takes over what waits behind others and would be no less accurate here, started at once."""
        if not self._behind or not device.up:
            return
        looks = 0
        for other in list(self._behind):
            if not other.booked or (not other.granted and not other.away and len(other.booked) < 2):
                del self._behind[other]
                continue
            looks += 1
            if looks > STEAL_LOOKS:
                return
            # The first would start there next: it is the later ones that gain most.
            batch = other.booked[-1]
            menu = device.menus.get(batch.application.name)
            if menu is None or other is device:
                continue
            within = batch.deadline + ROUNDING_S - now - device.starts_in(now)
            option = menu.best(batch.rows, len(batch.queries), within, device.factor, 0)
            if option is not None and option.worth >= batch.option.worth:
                self._unbook(batch)
                batch.option, batch.device = option, device
                self._book(batch, 0, now)
                return

    # --- granting ----------------------------------------------------------------------------------------------------

    def _consider(self, device: Device, now: float) -> None:
        """Grant what is booked if it is time, else wake when it will be."""
        booked = device.booked
        while booked and device.up:
            granted = device.granted
            if granted and (len(granted) > 1 or not device.way_s or self._overdue(device, now)):
                # Nothing more before an answer comes; but if none does, what is booked must not wait for ever.
                first = device.granted[0]
                at = first.end + 1.01 * max(OVERDUE_S, OVERDUE * (first.end - first.granted_at))
                self._wake_at(device, max(at, now + OVERDUE_S))
                return
            if device.free_at > now:
                # Just in time: it arrives as the device becomes free.
                at = device.free_at - device.way_s
                if at > now:
                    self._wake_at(device, at)
                    return
            device.away = False
            first = booked[0]
            if len(booked) == 1 and not granted:
                until = self._waits_until(first, device, now)
                if until > now:
                    self._wake_at(device, until)
                    return
            self._grant(first, device, now)
        self._wake_at(device, math.inf)

    def _waits_until(self, batch: Batch, device: Device, now: float) -> float:
        option, rows = batch.option, batch.rows
        if rows >= option.max_rows or not option.improves[rows] or batch.deadline == math.inf:
            return now
        first = batch.queries[0]
        way_s, factor = device.way_s, device.factor
        pressure = self._pressure(batch.application, device, now)
        patience = WAIT + WAIT_UNDER_PRESSURE * pressure
        spare = batch.deadline - first.arrived - option.seconds(1) * factor - way_s
        last = batch.deadline - max(option.seconds(rows + 1), option.seconds(rows)) * factor - way_s
        return min(last, first.arrived + patience * spare)

    def _pressure(self, application: Application, device: Device, now: float) -> float:
        """The part of the SLO for which devices like this one are booked (0 to 1)."""
        slo_s = application.slo_s
        menu = device.menus.get(application.name)
        for group in application.groups:
            if group.menu is menu or (menu is not None and group.menu.key == menu.key):
                total = count = 0
                for other in group.devices:
                    if not other.away:
                        wait = other.free_at - now
                        wait = (wait if wait > 0.0 else 0.0) + other.booked_s
                        total += wait if wait < slo_s else slo_s
                        count += 1
                return total / (count * slo_s) if count else 1.0
        return 1.0

    def _grant(self, batch: Batch, device: Device, now: float) -> None:
        application, rows = batch.application, batch.rows
        device.booked.pop(0)
        if batch in application.open:
            application.open.remove(batch)
        start = now + device.starts_in(now)
        slack = min(batch.deadline, math.inf) + ROUNDING_S - start
        if device.booked:
            device.recount()
            seconds = device.seconds(batch.option, rows)
            slack = min(slack, device.slack(0, now) + ROUNDING_S)
        menu = device.menus.get(application.name)
        if menu is not None and len(menu.options) > 1:
            level = int(self._pressure(application, device, now) * LEVELS)
            option = menu.best(rows, len(batch.queries), slack, device.factor, min(level, LEVELS - 1))
            if option is not None:
                batch.option = option
        seconds = device.seconds(batch.option, rows)
        batch.granted, batch.granted_at = True, now
        batch.end = device.free_at = start + seconds
        device.granted.append(batch)
        device.recount()
        self.grants.append(batch)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _device(self, name: Hashable) -> Device:
        device = self._devices.get(name)
        if device is None:
            device = self._devices[name] = Device(name)
        return device

    def _regroup(self) -> None:
        for application in self._applications.values():
            groups: dict[tuple, Group] = {}
            for device in self._devices.values():
                menu = device.menus.get(application.name)
                if menu is None or not device.up:
                    continue
                group = groups.get(menu.key)
                if group is None:
                    group = groups[menu.key] = Group(menu)
                group.devices.append(device)
            application.groups = list(groups.values())
            self._claim(application)
            application.best_worth = max((group.menu.best_worth for group in application.groups), default=-math.inf)

    def _claim(self, application: Application) -> None:
        """Note which devices the application depends on."""
        for device, _ in application.hosts:
            device.claims = [claim for claim in device.claims if claim[0] is not application]
        application.hosts = []
        if sum(len(group.devices) for group in application.groups) > FEW_HOSTS:
            return
        for group in application.groups:
            quickest = min(option.seconds(1) for option in group.menu.options)
            for device in group.devices:
                limit_s = application.slo_s - quickest * device.factor
                application.hosts.append((device, limit_s))
                device.claims.append((application, limit_s))

    def _refuse_all(self, queries: Iterable[Query]) -> None:
        for query in queries:
            query.booking = None
            self.refused.append(query)
