"""Queries that wait in the gateway: the dispatcher's decisions carried out, on the event loop's clock.

The :class:`~workers.dispatch.dispatcher.Dispatcher` is pure; this is what is thin around it. After every call it sends
the batches that were granted, ends the queries that were refused, and sees that it is woken in time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from workers import log
from workers.alarm import Alarm
from workers.dispatch.classes import class_of
from workers.dispatch.dispatcher import Dispatcher
from workers.dispatch.menu import Menu
from workers.dispatch.state import Batch
from workers.protocol import shapes
from workers.protocol.frames import ExecutorState
from workers.protocol.specs import ApplicationSpec

from .flights import Flight, UnderWay
from .metrics import GatewayMetrics

logger = log.get("gateway.holding")

#: what is due within this time is due now: it would be over by the time that an alarm has rung
SOON_S = 0.00005
#: a device that could not be sent a batch gets nothing for so long
REST_S = 0.1


class Carrier(Protocol):
    """Who carries decisions out. Called from the event loop; must not raise."""

    def grant(self, batch: Batch, now: float) -> bool:
        """Send a batch to its device; False where that is impossible just now."""

    def refused(self, flight: Flight) -> None:
        """No device can answer the query in time."""

    def usable(self, device: str) -> bool:
        """Whether the device is connected and takes queries."""


class Holding:
    """Holds queries until a device is about to run them. A flight given to :meth:`submit` is granted or refused, by the
    carrier, exactly once, unless it is withdrawn or declined meanwhile."""

    def __init__(self, carrier: Carrier, metrics: GatewayMetrics):
        self._carrier = carrier
        self._metrics = metrics
        self._dispatcher = Dispatcher()
        self._held: dict[int, Flight] = {}
        #: held, but not booked yet
        self._arrived: list[tuple[str, Flight]] = []
        self._menus: dict[str, Mapping[str, Menu]] = {}
        self._offering: dict[str, set[str]] = {}
        self._up: set[str] = set()
        #: answers of :meth:`offered` since these two last changed
        self._offered: dict[str, bool] = {}
        self._acting = False
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self._rang)

    # --- what may be held ---------------------------------------------------------------------------------------------

    @property
    def held(self) -> list[Flight]:
        """Queries that wait here."""
        return list(self._held.values())

    def expired(self, now: float) -> list[Flight]:
        """Those that wait here for longer than they should."""
        return [flight for flight in self._held.values() if flight.expires <= now]

    def __len__(self) -> int:
        return len(self._held)

    def offered(self, application: str) -> bool:
        """Whether some device that is up can run something for the application, or the size class, in time."""
        known = self._offered.get(application)
        if known is None:
            known = self._offered[application] = not self._up.isdisjoint(self._offering.get(application, ()))
        return known

    # --- what is known of devices -------------------------------------------------------------------------------------

    def configure(self, applications: Mapping[str, ApplicationSpec], now: float) -> None:
        """Take over the applications; queries held for others are refused. Those of size classes that are no more
        are booked anew, as soon as devices offer what there is instead."""
        known = {
            class_of(name, size): (spec.slo_s, spec.late == "serve")
            for name, spec in applications.items()
            for size in shapes.classes(spec)
        }
        moved = [
            flight
            for flight in self._held.values()
            if flight.spec.name in applications and flight.booked_as not in known
        ]
        for flight in moved:
            self._dispatcher.withdraw(flight, now)
            flight.size = shapes.class_holding(applications[flight.spec.name], flight.size)
            flight.booked_as = class_of(flight.spec.name, flight.size)
        self._dispatcher.set_applications(known, now)
        self._arrived = [(flight.booked_as, flight) for _, flight in self._arrived]
        waiting = {flight.id for _, flight in self._arrived}
        for flight in moved:
            if flight.id not in waiting:
                self.submit(flight)
        self._act(now)

    def offer(self, device: str, menus: Mapping[str, Menu], now: float) -> None:
        """What the device can run now."""
        if self._menus.get(device) is menus:
            return
        self._menus[device] = menus
        self._offered.clear()
        for devices in self._offering.values():
            devices.discard(device)
        for name in menus:
            self._offering.setdefault(name, set()).add(device)
        self._dispatcher.set_menus(device, menus, now)
        self._act(now)

    def set_up(self, device: str, up: bool, now: float) -> None:
        """Whether the device takes queries; what is booked on one that does not is booked elsewhere."""
        if up == (device in self._up):
            return
        self._offered.clear()
        if up:
            self._up.add(device)
        else:
            self._up.discard(device)
        self._dispatcher.set_up(device, up, now)
        self._act(now)

    def refresh(self, device: str, now: float) -> None:
        """Whether the device takes queries may have changed."""
        self.set_up(device, self._carrier.usable(device), now)

    def heard(self, device: str, state: ExecutorState, now: float) -> None:
        """A device told its state."""
        self.refresh(device, now)
        menus = self._menus.get(device, {})
        # Where this gateway has granted nothing, what waits there is others': the dispatcher sees to that.
        work_s = sum(menus[name].options[0].seconds(rows) for name, rows in state.queued.items() if name in menus)
        self._dispatcher.set_busy(device, now + state.busy_s + work_s, now)
        self._act(now)

    def set_way(self, device: str, way_s: float) -> None:
        """Seconds to the device and back."""
        self._dispatcher.set_way(device, way_s)

    def lost(self, device: str, now: float) -> None:
        """The device is gone; the caller brings back by :meth:`declined` what was under way there."""
        self._up.discard(device)
        self._offered.clear()
        self._dispatcher.lost(device, now)
        self._act(now)

    def close(self) -> None:
        """Wake up no more."""
        self._alarm.close()

    # --- queries ------------------------------------------------------------------------------------------------------

    def submit(self, flight: Flight) -> None:
        """Hold a query. It is booked once all that has arrived in this turn of the event loop is here."""
        if not self._arrived:
            self._loop.call_soon(self._book)
        self._held[flight.id] = flight
        self._arrived.append((flight.booked_as, flight))

    def _book(self) -> None:
        arrived, self._arrived = self._arrived, []
        held = self._held
        arrivals = [one for one in arrived if one[1].id in held]
        if not arrivals:
            return
        now = time.monotonic()
        started = time.perf_counter()
        self._dispatcher.submit_all(arrivals, now)
        self._metrics.decision.observe((), (time.perf_counter() - started) / len(arrivals), len(arrivals))
        self._act(now)

    def withdraw(self, flight: Flight, now: float) -> bool:
        """Forget a query that waits here; False if it does not."""
        if self._held.pop(flight.id, None) is None:
            return False
        self._dispatcher.withdraw(flight, now)
        self._act(now)
        return True

    def landed(self, flights: Sequence[Flight], now: float, rows: int = 0, held_s: float = 0.0) -> None:
        """Granted queries of one batch have their answers, or none will come. ``rows`` and ``held_s`` are the batch's,
        where it ran."""
        under_way: UnderWay | None = flights[0].batch
        others = [flight for flight in flights if flight.batch is not under_way]
        if others:
            # No executor answers two batches at once; if one does, neither is left without an end.
            self.landed(others, now)
        if under_way is None:
            return
        for flight in flights:
            if flight.batch is under_way:
                flight.batch = None
                under_way.left -= 1
        if held_s > 0:
            under_way.ran = rows, held_s
        if not under_way.left:
            self._ended(under_way, now)

    def _ended(self, under_way: UnderWay, now: float) -> None:
        batch = under_way.batch
        # A batch that ran with fewer rows than expected says nothing about the time that was expected.
        run_s = under_way.ran[1] if under_way.ran is not None and under_way.ran[0] == batch.rows else None
        self._dispatcher.ended(batch, now, run_s)
        self._act(now)

    def abandoned(self, flight: Flight, now: float) -> None:
        """Nobody waits any more for the answer to a granted query. What runs is not stopped by that: one that nobody
        waits for keeps its device until it is expected to end."""
        under_way: UnderWay | None = flight.batch
        if under_way is None:
            return
        flight.batch = None
        under_way.left -= 1
        if under_way.left:
            return
        if under_way.ran is not None:
            # Others of its queries have their answers: it has run.
            self._ended(under_way, now)
        else:
            rest_s = under_way.batch.end - now
            self._loop.call_later(max(0.0, rest_s), self._expected_end, under_way.batch)

    def _expected_end(self, batch: Batch) -> None:
        now = time.monotonic()
        self._dispatcher.ended(batch, now)
        self._act(now)

    def observe(self, device: str, flight: Flight, variant: int, held_s: float, now: float) -> None:
        """A query that ran by itself and was not granted here held the device for so long."""
        self._dispatcher.observe(device, variant, flight.rows, held_s, now, flight.booked_as)

    def declined(self, flights: Iterable[Flight], now: float) -> None:
        """Hold queries again that a device gave back, as far as their time lasts."""
        flights = list(flights)
        self._held.update((flight.id, flight) for flight in flights)
        self._dispatcher.declined(flights, now)
        self._act(now)

    # --- carrying out -------------------------------------------------------------------------------------------------

    def _act(self, now: float) -> None:
        """Carry out what the dispatcher decided."""
        if self._acting:
            # An answer made room for the client's next query: whoever is at it below goes on with that too.
            return
        dispatcher = self._dispatcher
        if dispatcher.grants or dispatcher.refused:
            self._acting = True
            try:
                while dispatcher.grants or dispatcher.refused:
                    grants = dispatcher.grants[:]
                    refused: list[Flight] = dispatcher.refused[:]  # type: ignore[assignment]
                    dispatcher.grants.clear()
                    dispatcher.refused.clear()
                    for batch in grants:
                        self._grant(batch, now)
                    for flight in refused:
                        if self._held.pop(flight.id, None) is not None:
                            self._carrier.refused(flight)
            finally:
                self._acting = False
        if dispatcher.wake_at < self._alarm.at:
            self._alarm.set(dispatcher.wake_at)

    def _grant(self, batch: Batch, now: float) -> None:
        under_way = UnderWay(batch)
        held = self._held
        flights: list[Flight] = batch.queries  # type: ignore[assignment]
        for flight in flights:
            held.pop(flight.id, None)
            flight.batch = under_way
        if self._carrier.grant(batch, now):
            self._metrics.granted(batch.rows)
            return
        for flight in flights:
            flight.batch = None
        device: str = batch.device.name  # type: ignore[assignment]
        self._up.discard(device)
        self._offered.clear()
        self._dispatcher.set_up(device, False, now)
        self._dispatcher.ended(batch, now)
        self.declined(flights, now)
        self._loop.call_later(REST_S, self._rested, device)

    def _rested(self, device: str) -> None:
        if self._carrier.usable(device):
            self.set_up(device, True, time.monotonic())

    def _rang(self) -> None:
        # What arrives in this turn of the loop as well is booked before.
        self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        if self._arrived:
            self._book()
        now, at = time.monotonic(), self._dispatcher.wake_at
        if at - now > SOON_S:
            if at != self._alarm.at:
                self._alarm.set(at)
            return
        try:
            self._dispatcher.wake(max(now, at))
        finally:
            self._act(now)
