"""Which devices can run what, and how busy they are. Pure.

Devices with the same menus for every application are one *kind*; the kinds that offer an application the same menu are
one of its *groups*. A kind keeps sums over its devices, so that the pressure on a group, and an idle device of it, are
found without looking at every device.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Final

from .classes import owner_of
from .devices import Batch, Device
from .leeway import Leeway
from .menu import INF, Menu

#: an application with at most so many devices is not to be left without one that could take its next query, nor one
#: whose queries must start within this part of the longest SLO: others' batches may last longer than it can wait
FEW_HOSTS: Final = 12
TIGHT: Final = 0.5
#: for so many seconds after a refusal, one device more is kept able for the application each time
RESERVE_S: Final = 10.0
#: devices that a query which fits nowhere looks at for a place between others
LOOKS: Final = 8
#: for so many seconds after a refusal batches are opened only with room to grow (see :mod:`.overload`)
HOLD_S: Final = 1.0
#: once no device had one, none is looked for again for this part of the SLO: overload must not cost time as well
FULL: Final = 0.01


#: how much an arrival counts in the running mean of the time between two, and the longest such time that counts
GAP_WEIGHT: Final = 0.1
LONGEST_GAP_S: Final = 1.0
#: for how long, in seconds, it is remembered at least how many queries were under way at once
REMEMBERED_S: Final = 0.05


class Kind:
    """Devices with the same menus. ``groups``: theirs, by application. Of those that are not away: ``count``, how many
    are ``busy``, the sum ``until_sum`` of when these will be free, and ``booked_s``. ``idle``: those with nothing to
    do, the longest idle first."""

    __slots__ = ("booked_s", "busy", "count", "devices", "groups", "idle", "until_sum")

    def __init__(self) -> None:
        self.devices: list[Device] = []
        self.groups: dict[str, Group] = {}
        self.idle: dict[Device, None] = {}
        self.count = 0
        self.busy = 0
        self.until_sum = 0.0
        self.booked_s = 0.0


class Group:
    """The devices that offer an application the same menu."""

    __slots__ = ("kinds", "menu")

    def __init__(self, menu: Menu) -> None:
        self.menu = menu
        self.kinds: list[Kind] = []

    def devices(self) -> Iterator[Device]:
        for kind in self.kinds:
            yield from kind.devices

    def pressure(self, now: float, slo_s: float) -> float:
        """The part of the SLO for which these devices are booked (0 to 1)."""
        total, count, idle = 0.0, 0, 0
        for kind in self.kinds:
            total += kind.until_sum - kind.busy * now + kind.booked_s
            count += kind.count
            idle += len(kind.idle)
        return pressure_of(total, count, idle, slo_s)


def pressure_of(total_s: float, count: int, idle: int, slo_s: float) -> float:
    """The part of the SLO for which ``count`` devices, ``idle`` of which have nothing to do, are booked for ``total_s``
    seconds together; not more than the part of them that is busy, however long they are."""
    if not count:
        return 1.0
    pressure, busy = total_s / (count * slo_s), 1.0 - idle / count
    return 0.0 if pressure < 0.0 else busy if pressure > busy else pressure


def pressure_at(device: Device, application: Application, now: float) -> float:
    """The pressure on the devices that offer the application what this one does, which must be up."""
    kind = device.kind
    assert kind is not None
    return kind.groups[application.name].pressure(now, application.bookable_s(now))


class Application:
    """``owner``: the application of which this is a size class, or its own name. ``open``: its batches that may still
    grow. ``serve_late``: late queries are answered rather than refused.
    ``hosts``: where it depends on few or cannot wait, its devices, with the seconds after which a query that has just
    arrived must start there; ``reserve`` of them, besides the one in question, are to stay able to take its next query.
    ``crowd``: all its devices with their groups, and ``looked_at``, where the next look at some begins.
    ``under_way``: its queries that are booked or granted; ``most_under_way``: the most that were of late. Clients that
    wait for an answer before they ask again are no more than that."""

    __slots__ = (
        "_most_before",
        "_most_since",
        "_vain",
        "_vain_since",
        "_window_at",
        "best_worth",
        "crowd",
        "gap_s",
        "groups",
        "hosts",
        "last_at",
        "leeway",
        "looked_at",
        "most_under_way",
        "name",
        "open",
        "owner",
        "refused_at",
        "reserve",
        "serve_late",
        "slo_s",
        "under_way",
    )

    def __init__(self, name: str, slo_s: float, serve_late: bool = False) -> None:
        self.name = name
        self.owner = owner_of(name)
        self.slo_s = slo_s
        self.serve_late = serve_late
        self.groups: list[Group] = []
        self.hosts: list[tuple[Device, float]] = []
        self.crowd: list[tuple[Group, Device]] = []
        self.reserve = 1
        self.refused_at = -INF
        self.leeway = Leeway()
        self.looked_at = 0
        self._vain, self._vain_since = 0, -INF
        self.open: list[Batch] = []
        self.best_worth = -INF
        #: seconds between two arrivals, as a running mean, and when the last one was; company is expected at first
        self.gap_s = 0.0
        self.last_at = INF
        self.under_way = self.most_under_way = 0
        self._most_before = self._most_since = 0
        self._window_at = -INF

    def arrived(self, count: int, now: float) -> None:
        """So many queries arrived at once."""
        since = now - self.last_at
        self.last_at = now
        if since < 0.0:
            since = 0.0
        elif since > LONGEST_GAP_S:
            since = LONGEST_GAP_S
        weight = GAP_WEIGHT * count
        self.gap_s += (weight if weight < 1.0 else 1.0) * (since / count - self.gap_s)
        self.under_way += count
        if now - self._window_at > REMEMBERED_S:
            self._most_before = self._most_since if now - self._window_at <= 2.0 * REMEMBERED_S else 0
            self._most_since, self._window_at = 0, now
        if self.under_way > self._most_since:
            self._most_since = self.under_way
        earlier, lately = self._most_before, self._most_since
        self.most_under_way = earlier if earlier > lately else lately

    def pressed(self, now: float) -> bool:
        """Whether a query was refused of late."""
        return now - self.refused_at < HOLD_S

    def kept(self, now: float) -> float:
        """The part of queries' time for which busy devices are not booked now (see :mod:`.leeway`)."""
        return self.leeway.part(now) if now - self.refused_at < HOLD_S else 0.0

    def bookable_s(self, now: float) -> float:
        """The part of the SLO for which devices are booked at most: to be full is to be booked for that."""
        return self.slo_s * (1.0 - self.kept(now))

    def full(self, now: float) -> bool:
        """Whether queries have looked at all devices of late for a place between others, and in vain."""
        return self._vain * LOOKS >= len(self.crowd) and now - self._vain_since < FULL * self.slo_s

    def looked_in_vain(self, now: float) -> None:
        """A query found no place between others on the devices that it looked at."""
        if now - self._vain_since >= FULL * self.slo_s:
            self._vain, self._vain_since = 0, now
        self._vain += 1

    def looked_everywhere(self, now: float) -> None:
        """A query found no place on any device."""
        self._vain, self._vain_since = len(self.crowd), now

    def missed(self, now: float) -> None:
        """A query was refused: others are to leave it more devices for a while."""
        reserve = self.reserve + 1 if now - self.refused_at < RESERVE_S else 2
        self.reserve = min(reserve, max(1, len(self.hosts) // 2))
        self.refused_at = now


class Fleet:
    """Applications and devices by name, and how they belong together."""

    def __init__(self) -> None:
        self.applications: dict[str, Application] = {}
        self.devices: dict[Hashable, Device] = {}
        self._menus: dict[tuple, Menu] = {}

    def device(self, name: Hashable) -> Device:
        """The device of that name; a new one if there is none."""
        device = self.devices.get(name)
        if device is None:
            device = self.devices[name] = Device(name)
        return device

    def offer(self, device: Device, menus: Mapping[str, Menu]) -> bool:
        """Take over what the device can run; False if nothing changed. :meth:`regroup` must follow."""
        # One object for equal menus: to compare them is then to compare identities.
        interned = {name: self._menus.setdefault(menu.key, menu) for name, menu in menus.items()}
        if interned == device.menus:
            return False
        device.menus = interned
        device.factors.keep(option for menu in interned.values() for option in menu.options)
        device.recount()
        return True

    def regroup(self, now: float) -> None:
        """After a change of menus, of applications, or of what is up."""
        kinds: dict[tuple, Kind] = {}
        for device in self.devices.values():
            device.kind = None
            device.claims = []
            device.counted, device.counted_until, device.counted_booked_s = 0, 0.0, 0.0
            if not device.up:
                continue
            key = tuple((name, id(device.menus[name])) for name in sorted(device.menus))
            kind = kinds.get(key)
            if kind is None:
                kind = kinds[key] = Kind()
            kind.devices.append(device)
            device.kind = kind
            self.note(device, now)
        for kind in kinds.values():
            kind.count = sum(not device.away for device in kind.devices)
        longest_s = max((application.slo_s for application in self.applications.values()), default=0.0)
        for application in self.applications.values():
            groups: dict[int, Group] = {}
            for kind in kinds.values():
                menu = kind.devices[0].menus.get(application.name)
                if menu is None:
                    continue
                group = groups.get(id(menu))
                if group is None:
                    group = groups[id(menu)] = Group(menu)
                group.kinds.append(kind)
                kind.groups[application.name] = group
            application.groups = list(groups.values())
            application.best_worth = max((group.menu.best_worth for group in application.groups), default=-INF)
            application.crowd = [(group, device) for group in application.groups for device in group.devices()]
            application.looked_at = 0
            self._claim(application, longest_s)

    def _claim(self, application: Application, longest_s: float) -> None:
        """Note which devices the application depends on; no device has a claim of it yet."""
        application.hosts = []
        hosts = [(d, application.slo_s - d.least(group.menu, 1)) for group, d in application.crowd]
        if len(hosts) > FEW_HOSTS and max(limit_s for _, limit_s in hosts) >= TIGHT * longest_s:
            return
        application.hosts = hosts
        for device, limit_s in hosts:
            device.claims.append((application, limit_s))

    def set_away(self, device: Device, away: bool, now: float) -> None:
        """Whether the device does something of its own."""
        if device.away != away:
            device.away = away
            if device.kind is not None:
                device.kind.count += -1 if away else 1
        self.note(device, now)

    @staticmethod
    def note(device: Device, now: float) -> None:
        """After any change of what the device does, or will do."""
        kind = device.kind
        if kind is None:
            return
        if device.away:
            busy, until, booked_s = 0, 0.0, 0.0
        elif device.granted or device.free_at > now:
            busy, until, booked_s = 1, device.free_at, device.booked_s
        else:
            busy, until, booked_s = 0, 0.0, device.booked_s
        kind.busy += busy - device.counted
        kind.until_sum += until - device.counted_until
        if not kind.busy:
            # Roundings do not add up over months.
            kind.until_sum = 0.0
        kind.booked_s += booked_s - device.counted_booked_s
        device.counted, device.counted_until, device.counted_booked_s = busy, until, booked_s
        if busy or device.booked or device.away:
            kind.idle.pop(device, None)
        else:
            kind.idle[device] = None
