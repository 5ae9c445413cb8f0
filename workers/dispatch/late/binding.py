"""Late binding: queries wait in the core, booked on devices, and are dispatched in batches just in time. Pure.

The dispatcher holds every query until a device is about to run it. On arrival a query is *booked*: it joins a batch
that is still being formed, or opens a new one on the device and with the variant of the highest value (see
:mod:`..options`) that can still answer it in time behind everything booked there before. So what is accepted has its
time on a device, bursts step down in accuracy before they are late, and whatever becomes possible later (a better
device idle, time for a more accurate variant) is taken when the batch starts: nothing is bound before it must be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from ..binding import Decisions, Query, QueryClass, Terms
from ..options import INF, Menu
from ..stragglers import expect_later, forget_slowness, gave_back, learn, overdue_at
from ..timers import Wakes
from .device_groups import Fleet
from .dispatching import Granting
from .schedule import Bookings
from .selection import unscaled
from .state import Batch, Device

#: how often, in seconds, devices are looked at of which no event tells
SWEEP_S = 0.1


class Dispatcher:
    """Books queries on devices and grants batches. A :class:`..binding.Binding`."""

    def __init__(self, bookings: type[Bookings] = Bookings, granting: type[Granting] = Granting) -> None:
        self._fleet = Fleet()
        self._wakes = Wakes()
        self._bookings = bookings(self._fleet)
        self._granting = granting(self._fleet, self._bookings, self._wakes)
        self._sweep_at = -INF

    def _decided(self, now: float) -> Decisions:
        """Consider all devices of which something has changed; what has been decided since the last call."""
        bookings, granting = self._bookings, self._granting
        if bookings.touched:
            granting.settle(now)
        grants, refused = granting.grants, bookings.refused
        if grants:
            granting.grants = []
        if refused:
            bookings.refused = []
        return Decisions(grants, refused, self._wakes.at)

    # --- what the plan says ------------------------------------------------------------------------------------------

    def configured(self, applications: Mapping[str, Terms], now: float) -> Decisions:
        """See :class:`..binding.Binding`."""
        for gone in self._fleet.configure(applications):
            for device in self._fleet.devices.values():
                for batch in [batch for batch in device.booked if batch.application is gone]:
                    self._bookings.unbook(batch, now)
                    self._bookings.refuse(batch.queries)
        self._fleet.regroup(now)
        return self._decided(now)

    def offered(self, device: Hashable, menus: Mapping[QueryClass, Menu], now: float) -> Decisions:
        """See :class:`..binding.Binding`. What is booked there and no longer possible is booked anew."""
        known = self._fleet.device(device)
        if self._fleet.offer(known, menus):
            self._fleet.regroup(now)
            moved = []
            for batch in list(known.booked):
                menu = known.menus.get(batch.application.query_class)
                if menu is None or all(option.key != batch.option.key for option in menu.options):
                    self._bookings.unbook(batch, now)
                    moved += batch.queries
            self._bookings.book_again(moved, now)
            self._bookings.touched[known] = None
        return self._decided(now)

    def device_changed(
        self, device: Hashable, now: float, up: bool | None = None, busy_until: float | None = None
    ) -> Decisions:
        """See :class:`..binding.Binding`. What is booked on a device that goes down is booked elsewhere.

        Raises:
            ValueError: ``busy_until`` is no finite time.
        """
        if busy_until is not None and not -INF < busy_until < INF:
            raise ValueError(f"busy_until: must be a finite time, not {busy_until}")
        known = self._fleet.device(device)
        if up is not None and up != known.up:
            self._set_up(known, up, now)
        if busy_until is not None:
            self._set_busy(known, busy_until, now)
        return self._decided(now)

    def set_away(self, device: Hashable, until: float, now: float) -> Decisions:
        """The device does something of its own until then; batches booked on it start later, or elsewhere."""
        known = self._fleet.device(device)
        known.free_at = max([until, *(batch.end for batch in known.granted)])
        self._fleet.set_away(known, until > now, now)
        self._bookings.check(known, now)
        self._bookings.touched[known] = None
        return self._decided(now)

    def rtt_changed(self, device: Hashable, rtt_s: float) -> None:
        """See :class:`..binding.Binding`."""
        self._fleet.device(device).way_s = rtt_s

    def lost(self, device: Hashable, now: float) -> Decisions:
        """See :class:`..binding.Binding`."""
        known = self._fleet.device(device)
        for batch in known.granted:
            batch.application.demand.under_way -= len(batch.queries)
        known.granted.clear()
        known.free_at = now
        self._fleet.set_away(known, False, now)
        if known.up:
            self._set_up(known, False, now)
        return self._decided(now)

    def _set_up(self, device: Device, up: bool, now: float) -> None:
        device.up = up
        self._fleet.regroup(now)
        if not up:
            self._bookings.take_back(device, now)
            return
        self._settle(device, now)
        if not device.granted and device.free_at <= now:
            self._bookings.steal(device, now)

    def _set_busy(self, device: Device, until: float, now: float) -> None:
        """Others' work holds the device until then; the newest report counts. What was granted here is known better."""
        if until < device.shy_until:
            until = device.shy_until
        if not device.granted and not device.away and (until > now or device.free_at > now):
            device.free_at = until
            self._fleet.note(device, now)
            self._bookings.check(device, now)
            self._settle(device, now)

    # --- queries -----------------------------------------------------------------------------------------------------

    def arrived(self, queries: Sequence[Query], now: float) -> Decisions:
        """See :class:`..binding.Binding`. None is granted before all have found their places, so that an idle device
        does not run the first one without the others."""
        if now >= self._sweep_at:
            self._sweep(now)
        find = self._fleet.application
        if len(queries) == 1:
            application = find(queries[0].query_class, now)
            if application is None:
                self._bookings.refuse(queries)
            else:
                application.arrived(1, now)
                self._bookings.place(application, queries[0], now)
            return self._decided(now)
        for query_class, count in Counter(query.query_class for query in queries).items():
            if (application := find(query_class, now)) is not None:
                application.arrived(count, now)
        self._bookings.place_all([(find(query.query_class, now), query) for query in queries], now)
        return self._decided(now)

    def probe(self, query: Query, now: float) -> Decisions:
        """See :class:`..binding.Binding`."""
        application = self._fleet.application(query.query_class, now)
        found = None if application is None else unscaled(application, query, now)
        if found is not None:
            option, device = found
            application.demand.under_way += 1
            self._granting.grant_alone(Batch(application, option, device, query), now)
        return self._decided(now)

    def withdrawn(self, query: Query, now: float) -> Decisions:
        """See :class:`..binding.Binding`."""
        self._bookings.withdraw(query, now)
        return self._decided(now)

    def finished(self, batch: Batch, now: float, run_s: float | None = None) -> Decisions:
        """See :class:`..binding.Binding`."""
        device = batch.device
        granted = device.granted
        if batch not in granted:
            return self._decided(now)
        granted.remove(batch)
        batch.application.demand.under_way -= len(batch.queries)
        if run_s is not None:
            learn(device, batch.option, batch.rows, run_s, now)
            device.shy_s, device.shy_until = 0.0, -INF
        if granted:
            # What it was granted meanwhile has just begun, or is on its way, whatever was expected.
            end = now
            for other in granted:
                reached = other.granted_at + device.way_s
                end = (end if end > reached else reached) + device.seconds(other.option, other.rows)
                other.end = end
            if not device.away or end > device.free_at:
                device.free_at = end
        elif not device.away:
            device.free_at = now
        self._fleet.note(device, now)
        if device.booked:
            self._bookings.check(device, now)
            self._bookings.touched[device] = None
        elif not granted and self._bookings.behind:
            self._bookings.behind.pop(device, None)
            self._bookings.steal(device, now)
        return self._decided(now)

    def returned(self, queries: Sequence[Query], now: float) -> Decisions:
        """See :class:`..binding.Binding`. They are booked elsewhere if that can be: the device is left alone for a
        moment, and longer if it gives back more."""
        for device in dict.fromkeys(query.booking.device for query in queries if query.booking is not None):
            if device.up and now >= device.shy_until:
                gave_back(device, now)
                self._set_busy(device, max(device.free_at, device.shy_until), now)
        for query in queries:
            if query.booking is not None:
                query.booking.application.demand.under_way += 1
        self._bookings.book_again(queries, now)
        return self._decided(now)

    def pressure(self, application: str, now: float) -> float:
        """See :class:`..binding.Binding`."""
        known = self._fleet.applications[QueryClass(application)]
        groups = known.groups
        devices = sum(kind.count for group in groups for kind in group.kinds)
        if not devices:
            return 1.0
        booked = sum(g.pressure(now, known.slo_s) * sum(kind.count for kind in g.kinds) for g in groups)
        return booked / devices

    # --- time --------------------------------------------------------------------------------------------------------

    def wake(self, now: float) -> Decisions:
        """See :class:`..binding.Binding`."""
        for device in self._wakes.due(now):
            if device.booked and device.granted and now > overdue_at(device):
                # Its answers are late, nobody knows by how much: what can go elsewhere goes in time.
                self._expect_later(device, now)
                self._bookings.check(device, now)
            self._settle(device, now)
            if device.counted and not device.granted:
                # Others' work there has ended.
                self._fleet.note(device, now)
        return self._decided(now)

    def _settle(self, device: Device, now: float) -> None:
        """Of the device something has changed of which the bookings do not know."""
        self._bookings.touched[device] = None
        self._granting.settle(now)

    def _expect_later(self, device: Device, now: float) -> None:
        expect_later(device, now)
        self._fleet.note(device, now)

    def _sweep(self, now: float) -> None:
        """Look at what no event tells of: devices that do not answer, and slow ones that get nothing to run, so that
        nobody would learn that they are slow no more."""
        self._sweep_at = now + SWEEP_S
        for device in self._fleet.devices.values():
            if device.granted and not device.booked and device.free_at <= now and now > overdue_at(device):
                self._expect_later(device, now)
            if forget_slowness(device, now):
                self._fleet.note(device, now)
