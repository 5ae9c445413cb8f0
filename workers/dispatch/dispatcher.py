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
from dataclasses import dataclass
from typing import Final

from .devices import Batch, Device, Query
from .fleet import Application, Fleet, pressure_at
from .lateness import expect_later, find_option, forget_slowness, gave_back, learn, looked_at_again, overdue_at
from .menu import INF, Menu, Option
from .overload import budget, kept_free, overtakes, roomy, spacious
from .placing import ROUNDING_S, anywhere, gap, hurried, joinable, joins, opening, takeover
from .starting import chosen, waits_until
from .wakes import Wakes

#: how often, in seconds, devices are looked at of which no event tells
SWEEP_S: Final = 0.1
#: a batch goes to a device ahead of an answer only if that takes more seconds than this, or if it is full
AHEAD_S: Final = 0.001
#: while queries are refused, all of an application's devices are looked at for each one that has no usual place if
#: there are no more than this; of more, now and then
MANY: Final = 32


@dataclass(frozen=True)
class Rules:
    """What the dispatcher does beyond booking in order; to take a part away shows what it is worth.

    ``prices``: time costs accuracy under pressure. ``waiting``: a batch waits for company. ``squeezing``: a query that
    fits nowhere is fitted in front of others, or by hurrying them. ``stealing``: idle devices take over what waits
    elsewhere. ``upgrades``: the variant is chosen again when a batch starts."""

    prices: bool = True
    waiting: bool = True
    squeezing: bool = True
    stealing: bool = True
    upgrades: bool = True


class Dispatcher:
    """Books queries on devices and grants batches.

    ``grants``: batches to send now, each to its ``device.name``; ``refused``: queries that no device can answer in
    time. The caller empties both after every call. Each query given to :meth:`submit` is granted or refused exactly
    once, unless it is withdrawn or comes back by :meth:`declined`, which books it again.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()
        self.grants: list[Batch] = []
        self.refused: list[Query] = []
        self._fleet = Fleet()
        self._wakes = Wakes()
        #: devices on which something is booked behind something granted
        self._behind: dict[Device, None] = {}
        self._sweep_at = -INF
        #: while queries that arrived together are booked: devices to be considered once all are, and the one whose sums
        #: are not up to date
        self._gathering = False
        self._gathered: dict[Device, None] = {}
        self._stale: Device | None = None

    @property
    def wake_at(self) -> float:
        """When :meth:`wake` is due; inf: only after something else happened."""
        return self._wakes.at

    # --- what the plan says ------------------------------------------------------------------------------------------

    def set_applications(self, applications: Mapping[str, tuple[float, bool]], now: float) -> None:
        """(SLO in seconds, whether late queries are served) by name. What is booked for others is refused."""
        mine = self._fleet.applications
        changed: dict[Device, None] = {}
        for name in [name for name in mine if name not in applications]:
            gone = mine.pop(name)
            for device in self._fleet.devices.values():
                for batch in [batch for batch in device.booked if batch.application is gone]:
                    self._unbook(batch, now)
                    self._refuse_all(batch.queries)
                    changed[device] = None
        for name, (slo_s, serve_late) in applications.items():
            known = mine.get(name)
            if known is None:
                mine[name] = Application(name, slo_s, serve_late)
            else:
                known.slo_s, known.serve_late = slo_s, serve_late
        self._fleet.regroup(now)
        for device in changed:
            self._consider(device, now)

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
                self._unbook(batch, now)
                moved += batch.queries
        self._book_again(moved, now)
        self._consider(known, now)

    def set_up(self, device: Hashable, up: bool, now: float) -> None:
        """Whether the device takes queries. What is booked on one that does not is booked elsewhere."""
        known = self._fleet.device(device)
        if known.up == up:
            return
        known.up = up
        self._fleet.regroup(now)
        if not up:
            self._take_back(known, now)
        else:
            self._consider(known, now)
            if not known.granted and known.free_at <= now:
                self._steal(known, now)

    def set_away(self, device: Hashable, until: float, now: float) -> None:
        """The device does something of its own until then; batches booked on it start later, or elsewhere."""
        known = self._fleet.device(device)
        known.free_at = max([until, *(batch.end for batch in known.granted)])
        self._fleet.set_away(known, until > now, now)
        self._check(known, now)
        self._consider(known, now)

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
            self._check(known, now)
            self._consider(known, now)

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
            self._refuse_all([query])
        else:
            known.arrived(1, now)
            self._place(known, query, now)

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
        self._gathering = True
        try:
            last: str | None = None
            known: Application | None = None
            batch: Batch | None = None
            for name, query in arrivals:
                if name != last:
                    last, known = name, self._fleet.applications.get(name)
                if known is None:
                    self._refuse_all([query])
                elif batch is None or batch.application is not known or known.kept(now) or not joins(batch, query, now):
                    # How long batches take by now counts for whoever is placed next.
                    self._freshen(now)
                    self._place(known, query, now)
                    batch = query.booking
                else:
                    # What it means for its device is seen to when all have their places.
                    query.booking = batch
                    batch.queries.append(query)
                    batch.rows += query.rows
                    if query.deadline < batch.deadline:
                        batch.deadline = query.deadline
                    self._stale = batch.device
                    if batch.rows >= batch.option.max_rows:
                        known.open.remove(batch)
        finally:
            self._gathering = False
            self._freshen(now)
            gathered, self._gathered = self._gathered, {}
            for device in gathered:
                self._consider(device, now)

    def withdraw(self, query: Query, now: float) -> bool:
        """Forget a query that waits; False if it does not (any more)."""
        batch: Batch | None = query.booking
        if batch is None or batch.granted:
            return False
        query.booking = None
        batch.application.under_way -= 1
        if len(batch.queries) == 1:
            self._unbook(batch, now)
        else:
            batch.queries.remove(query)
            batch.rows -= query.rows
            batch.deadline = min(other.deadline for other in batch.queries)
            self._keep_open(batch)
            batch.device.recount()
            self._fleet.note(batch.device, now)
        self._consider(batch.device, now)
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
            self._check(device, now)
            self._consider(device, now)
        elif not granted and self._behind:
            self._behind.pop(device, None)
            self._steal(device, now)

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
        self._book_again(queries, now)

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
                self._check(device, now)
            self._consider(device, now)
            if device.counted and not device.granted:
                # Others' work there has ended.
                self._fleet.note(device, now)

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

    # --- booking -----------------------------------------------------------------------------------------------------

    def _place(self, application: Application, query: Query, now: float, again: bool = False) -> None:
        """``again``: it had a place already, and is not to lose it for want of room for others."""
        rows, deadline = query.rows, query.deadline + ROUNDING_S
        kept_s = 0.0 if again else kept_free(application, query, now)
        deadline -= kept_s
        batch = joinable(application, query, deadline, now, kept_s) if application.open else None
        worth = -INF if batch is None else batch.option.worth
        if worth < application.best_worth:
            found = opening(application, query, now, deadline, worth, self._rules.prices)
            if found is not None:
                option, device = found
                if (
                    again
                    or not application.pressed(now)
                    or roomy(option, device, rows, now, deadline, budget(application, query) - kept_s)
                ):
                    self._begin(Batch(application, option, device, query), now)
                    return
        if batch is not None:
            self._join(batch, query, now)
        elif not self._place_elsewhere(application, query, now, deadline + kept_s, again, kept_s):
            if application.serve_late and query.deadline < INF and application.groups:
                query.deadline = INF
                self._place(application, query, now, again)
            else:
                application.missed(now)
                if again:
                    application.leeway.given_up(now)
                application.under_way -= 1
                self._refuse_all([query])

    def _place_elsewhere(
        self, application: Application, query: Query, now: float, deadline: float, again: bool, kept_s: float
    ) -> bool:
        """Open a batch for a query that has no place where one is usually found; on busy devices ``kept_s`` before its
        deadline."""
        rows = query.rows
        budget_s: float | None = None
        if not again and application.pressed(now):
            many = len(application.crowd) > MANY
            if many and application.full(now):
                return False
            budget_s = budget(application, query) - kept_s
            found = spacious(application, rows, now, deadline, budget_s, kept_s)
            if found is None and many:
                placed = self._squeeze(application, query, now, deadline, budget_s, kept_s)
                if not placed:
                    application.looked_everywhere(now)
                return placed
        else:
            found = anywhere(application, rows, now, deadline)
        if found is not None:
            option, device = found
            self._begin(Batch(application, option, device, query), now)
            return True
        return self._squeeze(application, query, now, deadline, budget_s, kept_s)

    def _join(self, batch: Batch, query: Query, now: float) -> None:
        device = batch.device
        query.booking = batch
        batch.queries.append(query)
        batch.rows += query.rows
        if query.deadline < batch.deadline:
            batch.deadline = query.deadline
        if batch.rows >= batch.option.max_rows:
            batch.application.open.remove(batch)
        self._changed(device, now)

    def _begin(self, batch: Batch, now: float) -> None:
        """Book a new batch behind what is booked on its device; on an idle one it is granted if it need not wait."""
        device = batch.device
        if device.booked or device.granted or device.away or device.free_at > now:
            self._book(batch, now)
            return
        application, option, rows = batch.application, batch.option, batch.rows
        if self._gathering:
            self._book(batch, now)
            return
        pressure = pressure_at(device, application, now)
        until = batch.ready_at = now
        if rows < option.max_rows and option.improves[rows]:
            until = waits_until(batch, device, pressure, now) if self._rules.waiting else now
        if until <= now:
            self._grant(batch, device, pressure, now)
            return
        device.booked.append(batch)
        device.booked_s = option.seconds(rows) * device.factors[option]
        self._fleet.note(device, now)
        if rows < option.max_rows:
            application.open.append(batch)
        self._wakes.set(device, until)

    def _book(self, batch: Batch, now: float, position: int | None = None) -> None:
        """Behind what is booked on the batch's device, or in front of the batch at a position."""
        device = batch.device
        device.booked.insert(len(device.booked) if position is None else position, batch)
        if device.granted or len(device.booked) > 1:
            self._behind[device] = None
        if batch.rows < batch.option.max_rows:
            batch.application.open.append(batch)
        self._changed(device, now)

    def _changed(self, device: Device, now: float) -> None:
        """More is booked on the device."""
        if self._gathering:
            # Others that arrived with it may follow: the sums wait for them, too.
            if self._stale is not device:
                self._freshen(now)
                self._stale = device
            self._gathered[device] = None
        else:
            device.recount()
            self._fleet.note(device, now)
            self._consider(device, now)

    def _freshen(self, now: float) -> None:
        """Bring a device's sums up to date."""
        device, self._stale = self._stale, None
        if device is not None:
            device.recount()
            self._fleet.note(device, now)

    def _unbook(self, batch: Batch, now: float) -> None:
        device = batch.device
        device.booked.remove(batch)
        device.recount()
        self._fleet.note(device, now)
        if batch in batch.application.open:
            batch.application.open.remove(batch)

    def _squeeze(
        self,
        application: Application,
        query: Query,
        now: float,
        deadline: float,
        budget_s: float | None,
        kept_s: float,
    ) -> bool:
        """Find a place in front of what can wait, or by running what is booked on quicker variants. With ``budget_s``,
        as queries are being refused, only for one that is in more of a hurry than others, with room to grow, and all
        in time by ``kept_s``."""
        if not self._rules.squeezing or application.full(now):
            return False
        if budget_s is not None and not overtakes(application, deadline):
            application.looked_in_vain(now)
            return False
        found = gap(application, query.rows, now, deadline, budget_s, kept_s)
        if found is not None:
            option, device, position = found
        else:
            faster = hurried(application, query.rows, now, deadline, budget_s, kept_s)
            if faster is None:
                application.looked_in_vain(now)
                return False
            option, device, position, quicker = faster
            for batch, instead in zip(device.booked, quicker, strict=True):
                self._change(batch, instead)
        self._book(Batch(application, option, device, query), now, position)
        return True

    def _change(self, batch: Batch, option: Option) -> None:
        """Another variant for a booked batch."""
        batch.option = option
        self._keep_open(batch)

    @staticmethod
    def _keep_open(batch: Batch) -> None:
        """After a change of a booked batch: it is open if it may still grow."""
        known = batch.application.open
        if (batch in known) != (batch.rows < batch.option.max_rows):
            if batch in known:
                known.remove(batch)
            else:
                known.append(batch)

    def _take_back(self, device: Device, now: float) -> None:
        moved = []
        for batch in list(device.booked):
            self._unbook(batch, now)
            moved += batch.queries
        self._behind.pop(device, None)
        self._wakes.set(device, INF)
        self._book_again(moved, now)

    def _book_again(self, queries: list[Query], now: float) -> None:
        for query in sorted(queries, key=lambda query: query.deadline):
            known = query.booking.application if query.booking is not None else None
            application = self._fleet.applications.get(known.name) if known is not None else None
            query.booking = None
            if application is None:
                self._refuse_all([query])
            else:
                if application is not known:
                    application.under_way += 1
                self._place(application, query, now, again=True)

    def _check(self, device: Device, now: float) -> None:
        """After a delay: run what would be late on quicker variants, or book it elsewhere."""
        end = now + device.starts_in(now)
        moved: list[Query] | None = None
        for batch in device.booked:
            seconds = device.seconds(batch.option, batch.rows)
            if end + seconds > batch.deadline + ROUNDING_S:
                moved = []
                break
            end += seconds
        if moved is None:
            return
        end = now + device.starts_in(now)
        for batch in list(device.booked):
            seconds = device.seconds(batch.option, batch.rows)
            if end + seconds > batch.deadline + ROUNDING_S:
                menu = device.menus.get(batch.application.name)
                within = batch.deadline + ROUNDING_S - end
                option = menu.best(batch.rows, len(batch.queries), within, device.factors, 0) if menu else None
                if option is None:
                    self._unbook(batch, now)
                    moved += batch.queries
                    continue
                self._change(batch, option)
                seconds = device.seconds(option, batch.rows)
            end += seconds
        device.recount()
        self._fleet.note(device, now)
        self._book_again(moved, now)

    def _steal(self, device: Device, now: float) -> None:
        """An idle device takes over what waits behind others and would be no less accurate here, started at once."""
        if not device.up or device.away or not self._rules.stealing:
            return
        found = takeover(device, self._behind, now)
        if found is not None:
            option, batch = found
            self._unbook(batch, now)
            batch.option, batch.device = option, device
            self._book(batch, now, 0)

    # --- granting ----------------------------------------------------------------------------------------------------

    def _consider(self, device: Device, now: float) -> None:
        """Grant what is booked if it is time, else wake when it will be."""
        booked = device.booked
        while booked and device.up:
            granted = device.granted
            if granted and (
                len(granted) > 1 or not device.way_s or not _ahead(booked[0], device) or now > overdue_at(device)
            ):
                # Nothing more before an answer comes; but if none does, what is booked must not wait for ever.
                self._wakes.set(device, looked_at_again(device, now))
                return
            if device.free_at > now:
                # Just in time: it arrives as the device becomes free.
                at = device.free_at - device.way_s
                if at > now:
                    self._wakes.set(device, at)
                    return
            if device.away:
                self._fleet.set_away(device, False, now)
            batch = booked[0]
            if now + device.starts_in(now) + device.seconds(batch.option, batch.rows) > batch.deadline + ROUNDING_S:
                # Woken too late, or things have changed: nothing is granted that is bound to be late.
                self._check(device, now)
                continue
            pressure = pressure_at(device, batch.application, now)
            if len(booked) == 1 and not granted and self._rules.waiting:
                if now < batch.ready_at:
                    batch.ready_at = now
                until = waits_until(batch, device, pressure, now)
                if until > now:
                    # On the way others' work there may end, of which nothing else tells.
                    self._wakes.set(device, device.free_at if now < device.free_at < until else until)
                    return
            del booked[0]
            if batch in batch.application.open:
                batch.application.open.remove(batch)
            device.recount()
            self._grant(batch, device, pressure, now)
        if device.free_at > now and not device.granted and not device.away and device.up:
            # When others' work there ends nothing else tells.
            self._wakes.set(device, device.free_at)
        elif device.wake_at != INF:
            self._wakes.set(device, INF)

    def _grant(self, batch: Batch, device: Device, pressure: float, now: float) -> None:
        """Grant a batch that is not, or no longer, booked."""
        option = batch.option
        start = now + device.starts_in(now)
        if self._rules.upgrades:
            option = batch.option = chosen(batch, device, start, pressure if self._rules.prices else 0.0, now)
        batch.granted, batch.granted_at = True, now
        batch.end = device.free_at = start + option.seconds(batch.rows) * device.factors[option]
        device.granted.append(batch)
        self._fleet.note(device, now)
        self.grants.append(batch)

    def _refuse_all(self, queries: Iterable[Query]) -> None:
        for query in queries:
            query.booking = None
            self.refused.append(query)


def _ahead(batch: Batch, device: Device) -> bool:
    """Whether a batch is worth granting while another one runs. Ahead of a run that is over in a moment it saves hardly
    any time, and what arrives until the answer is here makes it larger."""
    running = device.granted[0]
    return running.end - running.granted_at > AHEAD_S or batch.rows >= batch.option.max_rows
