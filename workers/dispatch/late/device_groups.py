"""Applications and devices by name, and how they belong together. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ..binding import QueryClass, Terms
from ..options import INF, Menu
from .state import Application, Device, Group, Kind

#: an application with at most so many devices is not to be left without one that could take its next query, nor one
#: whose queries must start within this part of the longest SLO: others' batches may last longer than it can wait
FEW_HOSTS = 12
TIGHT = 0.5


class Fleet:
    """Classes of queries and devices, and how they belong together."""

    def __init__(self) -> None:
        self.applications: dict[QueryClass, Application] = {}
        self.devices: dict[Hashable, Device] = {}
        self._terms: Mapping[str, Terms] = {}
        self._menus: dict[tuple, Menu] = {}

    def device(self, name: Hashable) -> Device:
        """The device of that name; a new one if there is none."""
        device = self.devices.get(name)
        if device is None:
            device = self.devices[name] = Device(name)
        return device

    def configure(self, terms: Mapping[str, Terms]) -> list[Application]:
        """Take over the applications; the classes that are no more. :meth:`regroup` must follow."""
        self._terms = terms
        gone = []
        for query_class, known in list(self.applications.items()):
            its = terms.get(query_class.application)
            if its is None or query_class.size not in its.sizes:
                gone.append(self.applications.pop(query_class))
            elif query_class.permitted is not None and not known.demand.under_way:
                # It comes again with the next query that restricts itself in this way.
                del self.applications[query_class]
            else:
                known.slo_s, known.serve_late = its.slo_s, its.serve_late
        for name, its in terms.items():
            for size in its.sizes:
                query_class = QueryClass(name, size)
                if query_class not in self.applications:
                    self.applications[query_class] = Application(query_class, its)
        for device in self.devices.values():
            device.menus = self._interned(device.offers)
        return gone

    def application(self, query_class: QueryClass, now: float) -> Application | None:
        """The class; None: there is no such application. A new one if only the permitted variants are new."""
        known = self.applications.get(query_class)
        if known is not None or query_class.permitted is None:
            return known
        whole = self.applications.get(query_class._replace(permitted=None))
        if whole is None:
            return None
        terms = self._terms[query_class.application]
        known = self.applications[query_class] = Application(query_class, terms, whole.demand)
        for device in self.devices.values():
            device.menus = self._interned(device.offers)
        self.regroup(now)
        return known

    def offer(self, device: Device, menus: Mapping[QueryClass, Menu]) -> bool:
        """Take over what the device can run; False if nothing changed. :meth:`regroup` must follow."""
        device.offers = menus
        interned = self._interned(menus)
        if interned == device.menus:
            return False
        device.menus = interned
        device.factors.keep(option for menu in interned.values() for option in menu.options)
        device.recount()
        return True

    def _interned(self, menus: Mapping[QueryClass, Menu]) -> dict[QueryClass, Menu]:
        """One object for equal menus, so that to compare them is to compare identities; and those of restricted
        classes."""
        interned = {known: self._menus.setdefault(menu.key, menu) for known, menu in menus.items()}
        for query_class in self.applications:
            permitted = query_class.permitted
            if permitted is None:
                continue
            whole = query_class._replace(permitted=None)
            menu = menus.get(whole)
            if menu is None:
                continue
            same = {option.key: option for option in interned[whole].options}
            options = [same.get(option.key, option) for option in menu.every if option.variant in permitted]
            if options:
                restricted = Menu(options)
                interned[query_class] = self._menus.setdefault(restricted.key, restricted)
        return interned

    def regroup(self, now: float) -> None:
        """After a change of menus, of applications, or of what is up."""
        kinds: dict[frozenset, Kind] = {}
        for device in self.devices.values():
            device.kind = None
            device.claims = []
            device.counted, device.counted_until, device.counted_booked_s = 0, 0.0, 0.0
            if not device.up:
                continue
            key = frozenset([(query_class, id(menu)) for query_class, menu in device.menus.items()])
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
                menu = kind.devices[0].menus.get(application.query_class)
                if menu is None:
                    continue
                group = groups.get(id(menu))
                if group is None:
                    group = groups[id(menu)] = Group(menu)
                group.kinds.append(kind)
                kind.groups[application.query_class] = group
            application.groups = list(groups.values())
            application.best_worth = max((group.menu.best_worth for group in application.groups), default=-INF)
            application.crowd = [(group, device) for group in application.groups for device in group.devices()]
            application.looked_at = 0
            self._claim(application, longest_s)

    def _claim(self, application: Application, longest_s: float) -> None:
        """Note which devices the application depends on; no device has a claim of it yet."""
        application.hosts = []
        if application.permitted is not None:
            # Devices are not kept free for every accuracy that somebody may ask for.
            return
        hosts = [
            (device, application.slo_s - min(device.seconds(option, 1) for option in group.menu.options))
            for group, device in application.crowd
        ]
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
        busy, until, booked_s = 0, 0.0, device.booked_s
        if device.away:
            booked_s = 0.0
        elif device.granted or device.free_at > now:
            busy, until = 1, device.free_at
        if busy or device.counted:
            kind.busy += busy - device.counted
            kind.until_sum += until - device.counted_until
            if not kind.busy:
                # Roundings do not add up over months.
                kind.until_sum = 0.0
            device.counted, device.counted_until = busy, until
        kind.booked_s += booked_s - device.counted_booked_s
        device.counted_booked_s = booked_s
        if busy or device.booked or device.away:
            kind.idle.pop(device, None)
        else:
            kind.idle[device] = None
