"""Devices and classes by name, device groups, and their aggregates. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from weakref import WeakValueDictionary

from ..binding import QueryClass, ServiceTerms
from ..options import INF, OptionSet
from .state import ClassOffer, DeviceGroup, ScheduledDevice, ServedClass

#: a class depends on its devices if they are at most this many, or if its queries must start within this part of the
#: longest SLO: others' batches may take longer than it can wait
FEW_DEVICES = 12
TIGHT = 0.5


class DeviceGroups:
    def __init__(self) -> None:
        self.classes: dict[QueryClass, ServedClass] = {}
        self.devices: dict[Hashable, ScheduledDevice] = {}
        self._terms: Mapping[str, ServiceTerms] = {}
        #: those in use, by their keys: offers change for as long as the core runs
        self._option_sets: WeakValueDictionary[tuple, OptionSet] = WeakValueDictionary()

    def device(self, name: Hashable) -> ScheduledDevice:
        device = self.devices.get(name)
        if device is None:
            device = self.devices[name] = ScheduledDevice(name)
        return device

    def configure(self, terms: Mapping[str, ServiceTerms]) -> list[ServedClass]:
        """Return the classes that are gone; :meth:`regroup` must follow."""
        self._terms = terms
        gone = []
        for query_class, served in list(self.classes.items()):
            its = terms.get(query_class.application)
            if its is None or query_class.size not in its.sizes:
                gone.append(self.classes.pop(query_class))
            elif query_class.permitted is not None and not served.demand.pending:
                # The next query with this restriction creates it anew.
                del self.classes[query_class]
            else:
                served.slo_s, served.serve_late = its.slo_s, its.serve_late
        for name, its in terms.items():
            for size in its.sizes:
                query_class = QueryClass(name, size)
                if query_class not in self.classes:
                    self.classes[query_class] = ServedClass(query_class, its)
        for device in self.devices.values():
            device.set_options(self._interned(device.offered))
        return gone

    def find_class(self, query_class: QueryClass, now: float) -> ServedClass | None:
        """None: unknown application or size. A new restriction makes a class."""
        served = self.classes.get(query_class)
        if served is not None or query_class.permitted is None:
            return served
        whole = self.classes.get(query_class._replace(permitted=None))
        if whole is None:
            return None
        terms = self._terms[query_class.application]
        served = self.classes[query_class] = ServedClass(query_class, terms, whole.demand)
        for device in self.devices.values():
            device.set_options(self._interned(device.offered))
        self.regroup(now)
        return served

    def offer(self, device: ScheduledDevice, option_sets: Mapping[QueryClass, OptionSet]) -> bool:
        """Whether anything changed; if so, :meth:`regroup` must follow."""
        device.offered = option_sets
        interned = self._interned(option_sets)
        if interned == device.option_sets:
            return False
        device.set_options(interned)
        device.corrections.keep(option for options in interned.values() for option in options.options)
        device.recount()
        return True

    def _interned(self, option_sets: Mapping[QueryClass, OptionSet]) -> dict[QueryClass, OptionSet]:
        interned = {name: self._option_sets.setdefault(options.key, options) for name, options in option_sets.items()}
        for query_class in self.classes:
            whole = query_class._replace(permitted=None)
            if query_class.permitted is None or whole not in option_sets:
                continue
            same = {option.key: option for option in interned[whole].options}
            permitted = [
                same.get(option.key, option)
                for option in option_sets[whole].all_options
                if option.variant in query_class.permitted
            ]
            if permitted:
                restricted = OptionSet(permitted)
                interned[query_class] = self._option_sets.setdefault(restricted.key, restricted)
        return interned

    def regroup(self, now: float) -> None:
        """Due after a change of option sets, of classes, or of which devices are up."""
        groups: dict[frozenset, DeviceGroup] = {}
        for device in self.devices.values():
            device.group = None
            device.dependents = []
            device.away = False
            device.counted, device.counted_per_s, device.counted_until, device.counted_slos = 0, 0.0, 0.0, 0.0
            if not device.up:
                continue
            group = groups.get(device.group_key)
            if group is None:
                group = groups[device.group_key] = DeviceGroup()
            group.devices.append(device)
            group.count += 1
            device.group = group
            # SLOs may have changed.
            device.recount()
            self.update(device, now)
        longest_s = max((served.slo_s for served in self.classes.values()), default=0.0)
        for served in self.classes.values():
            offers: dict[int, ClassOffer] = {}
            before = {id(offer.option_set): offer for offer in served.offers}
            for group in groups.values():
                options = group.devices[0].option_sets.get(served.query_class)
                if options is not None:
                    offer = offers.setdefault(id(options), ClassOffer(served, options, before.get(id(options))))
                    offer.groups.append(group)
                    group.offers[served] = offer
            served.offers = list(offers.values())
            served.best_utility = max((offer.option_set.best_utility for offer in served.offers), default=-INF)
            served.candidates = [(offer, device) for offer in served.offers for device in offer.devices()]
            self._set_exclusive_devices(served, longest_s)

    def _set_exclusive_devices(self, served: ServedClass, longest_s: float) -> None:
        served.exclusive_devices = []
        if served.permitted is not None:
            # Devices are not reserved for each restriction that some query may have.
            return
        devices = []
        for offer, device in served.candidates:
            corrections = device.corrections
            least_s = min([option.by_rows[1] * corrections[option] for option in offer.option_set.options])
            devices.append((device, served.slo_s - least_s))
        if len(devices) <= FEW_DEVICES or max([limit_s for _, limit_s in devices]) < TIGHT * longest_s:
            served.exclusive_devices = devices
            application = served.query_class.application
            for device, limit_s in devices:
                if any(other.application != application for other in device.option_sets):
                    device.dependents.append((served, limit_s))

    def update(self, device: ScheduledDevice, now: float) -> None:
        device.ready_at = device.free_at + device.scheduled_s
        group = device.group
        if group is None:
            return
        busy, per_s, slos = 0, 0.0, device.scheduled_slos
        away = False
        if device.dispatched:
            busy, per_s = 1, 1.0 / device.dispatched[-1].served.slo_s
        elif device.free_at - device.rtt_s > now:
            away = True
        if away != device.away:
            device.away = away
            group.count += -1 if away else 1
        until = device.free_at * per_s if busy else 0.0
        if until != device.counted_until or per_s != device.counted_per_s:
            group.busy += busy - device.counted
            group.per_s_sum += per_s - device.counted_per_s
            group.until_sum += until - device.counted_until
            if not group.busy:
                # Rounding errors must not add up over months.
                group.per_s_sum = group.until_sum = 0.0
            device.counted, device.counted_per_s, device.counted_until = busy, per_s, until
        if slos != device.counted_slos:
            group.scheduled_slos += slos - device.counted_slos
            device.counted_slos = slos
        if busy or away or device.scheduled:
            group.idle.pop(device, None)
        else:
            group.idle[device] = None
