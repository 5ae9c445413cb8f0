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

from collections.abc import Hashable, Iterable, Mapping, Sequence

from .bookings import Bookings
from .fleet import Fleet
from .granting import Granting
from .lateness import expect_later, find_option, forget_slowness, gave_back, learn, overdue_at
from .menu import INF, Menu
from .rules import Rules
from .state import Application, Batch, Device, Query
from .wakes import Wakes

#: how often, in seconds, devices are looked at of which no event tells
SWEEP_S = 0.1


class Dispatcher:
    """Books queries on devices and grants batches.

    ``grants``: batches to send now, each to its ``device.name``; ``refused``: queries that no device can answer in
    time. The caller empties both after every call. Each query given to :meth:`submit` is granted or refused exactly
    once, unless it is withdrawn or comes back by :meth:`declined`, which books it again.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        rules = rules or Rules()
        self._fleet = Fleet()
        self._wakes = Wakes()
        self._bookings = Bookings(self._fleet, rules)
        self._granting = Granting(self._fleet, self._bookings, self._wakes, rules)
        self.grants = self._granting.grants
        self.refused = self._bookings.refused
        self._sweep_at = -INF

    @property
    def wake_at(self) -> float:
        """When :meth:`wake` is due; inf: only after something else happened."""
        return self._wakes.at

    # --- what the plan says ------------------------------------------------------------------------------------------

    def set_applications(self, applications: Mapping[str, tuple[float, bool]], now: float) -> None:
        """(SLO in seconds, whether late queries are served) by name. What is booked for others is refused."""
        mine = self._fleet.applications
        for name in [name for name in mine if name not in applications]:
            gone = mine.pop(name)
            for device in self._fleet.devices.values():
                for batch in [batch for batch in device.booked if batch.application is gone]:
                    self._bookings.unbook(batch, now)
                    self._bookings.refuse(batch.queries)
        for name, (slo_s, serve_late) in applications.items():
            known = mine.get(name)
            if known is None:
                mine[name] = Application(name, slo_s, serve_late)
            else:
                known.slo_s, known.serve_late = slo_s, serve_late
        self._fleet.regroup(now)
        self._granting.settle(now)

    def set_menus(self, device: Hashable, menus: Mapping[str, Menu], now: float) -> None:
        """What the device can run now, by application. What is booked there and no longer possible is booked anew."""
        known = self._fleet.device(device)
        if not self._fleet.offer(known, menus):
            return
        self._fleet.regroup(now)
        moved = []
        for batch in list(known.booked):
            menu = known.menus.get(batch.application.name)
            if menu is None or all(option.key != batch.option.key for option in menu.options):
                self._bookings.unbook(batch, now)
                moved += batch.queries
        self._bookings.book_again(moved, now)
        self._settle(known, now)

    def set_up(self, device: Hashable, up: bool, now: float) -> None:
        """Whether the device takes queries. What is booked on one that does not is booked elsewhere."""
        known = self._fleet.device(device)
        if known.up == up:
            return
        known.up = up
        self._fleet.regroup(now)
        if not up:
            self._bookings.take_back(known, now)
            self._granting.settle(now)
        else:
            self._settle(known, now)
            if not known.granted and known.free_at <= now:
                self._bookings.steal(known, now)
                self._granting.settle(now)

    def set_away(self, device: Hashable, until: float, now: float) -> None:
        """The device does something of its own until then; batches booked on it start later, or elsewhere."""
        known = self._fleet.device(device)
        known.free_at = max([until, *(batch.end for batch in known.granted)])
        self._fleet.set_away(known, until > now, now)
        self._bookings.check(known, now)
        self._settle(known, now)

    def set_busy(self, device: Hashable, until: float, now: float) -> None:
        """Somebody else's work holds the device until then, as its executor reports; the newest report counts. Of what
        was granted here the dispatcher knows better itself, and pays no heed.

        Raises:
            ValueError: ``until`` is no finite time.
        """
        if not -INF < until < INF:
            raise ValueError(f"until: must be a finite time, not {until}")
        known = self._fleet.device(device)
        if until < known.shy_until:
            until = known.shy_until
        if not known.granted and not known.away and (until > now or known.free_at > now):
            known.free_at = until
            self._fleet.note(known, now)
            self._bookings.check(known, now)
            self._settle(known, now)

    def set_way(self, device: Hashable, way_s: float) -> None:
        """How long the way to the device and back takes."""
        self._fleet.device(device).way_s = way_s

    # --- queries -----------------------------------------------------------------------------------------------------

    def submit(self, application: str, query: Query, now: float) -> None:
        """A query that arrived. It ends up in a batch of :attr:`grants`, now or later, or in :attr:`refused`."""
        if now >= self._sweep_at:
            self._sweep(now)
        known = self._fleet.applications.get(application)
        if known is None:
            self._bookings.refuse([query])
        else:
            known.arrived(1, now)
            self._bookings.place(known, query, now)
            self._granting.settle(now)

    def submit_all(self, arrivals: Sequence[tuple[str, Query]], now: float) -> None:
        """Queries that arrived together, each with its application: as :meth:`submit`, but none is granted before all
        have found their places, so that an idle device does not run the first one without the others."""
        if now >= self._sweep_at:
            self._sweep(now)
        counts: dict[str, int] = {}
        for name, _ in arrivals:
            counts[name] = counts.get(name, 0) + 1
        for name, count in counts.items():
            if (application := self._fleet.applications.get(name)) is not None:
                application.arrived(count, now)
        applications = self._fleet.applications
        self._bookings.place_all([(applications.get(name), query) for name, query in arrivals], now)
        self._granting.settle(now)

    def withdraw(self, query: Query, now: float) -> bool:
        """Forget a query that waits; False if it does not (any more)."""
        if not self._bookings.withdraw(query, now):
            return False
        self._granting.settle(now)
        return True

    def ended(self, batch: Batch, now: float, run_s: float | None = None) -> None:
        """A granted batch is answered. ``run_s``: what its run took; None: not known, or it failed."""
        device = batch.device
        granted = device.granted
        if batch not in granted:
            return
        granted.remove(batch)
        batch.application.under_way -= len(batch.queries)
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
            self._settle(device, now)
        elif not granted and self._bookings.behind:
            self._bookings.behind.pop(device, None)
            self._bookings.steal(device, now)
            self._granting.settle(now)

    def observe(
        self,
        device: Hashable,
        variant: Hashable,
        rows: int,
        run_s: float,
        now: float,
        application: str | None = None,
    ) -> None:
        """The device ran so many rows in so many seconds that were not granted to it: its pace is learned all the same.
        Else a device that was slow for a while, and gets nothing for it, could never show that it is not any more.
        ``application``: in whose menu the variant is looked for; None: in any."""
        known = self._fleet.device(device)
        option = find_option(known, variant, application)
        if option is not None:
            learn(known, option, rows, run_s, now)
            self._fleet.note(known, now)

    def declined(self, queries: Iterable[Query], now: float) -> None:
        """Queries of a granted batch that the device gave back; they are booked again, as far as their time lasts, and
        elsewhere if that can be: the device is left alone for a moment, and longer if it gives back more."""
        queries = list(queries)
        for device in dict.fromkeys(query.booking.device for query in queries if query.booking is not None):
            if device.up and now >= device.shy_until:
                gave_back(device, now)
                self.set_busy(device.name, max(device.free_at, device.shy_until), now)
        for query in queries:
            if query.booking is not None:
                query.booking.application.under_way += 1
        self._bookings.book_again(queries, now)
        self._granting.settle(now)

    def lost(self, device: Hashable, now: float) -> None:
        """The device is gone with all that it was granted; :meth:`declined` brings back what the caller still wants."""
        known = self._fleet.device(device)
        for batch in known.granted:
            batch.application.under_way -= len(batch.queries)
        known.granted.clear()
        known.free_at = now
        self._fleet.set_away(known, False, now)
        self.set_up(device, False, now)

    def pressure(self, application: str, now: float) -> float:
        """The part of its SLO for which an application's devices are booked (0 to 1); 1 where it has none."""
        known = self._fleet.applications[application]
        groups = known.groups
        devices = sum(kind.count for group in groups for kind in group.kinds)
        if not devices:
            return 1.0
        booked = sum(g.pressure(now, known.slo_s) * sum(kind.count for kind in g.kinds) for g in groups)
        return booked / devices

    # --- time --------------------------------------------------------------------------------------------------------

    def wake(self, now: float) -> None:
        """Start what has waited long enough. It may be called too early, or in vain."""
        for device in self._wakes.due(now):
            if device.booked and device.granted and now > overdue_at(device):
                # Its answers are late, nobody knows by how much: what can go elsewhere goes in time.
                self._expect_later(device, now)
                self._bookings.check(device, now)
            self._settle(device, now)
            if device.counted and not device.granted:
                # Others' work there has ended.
                self._fleet.note(device, now)

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
