"""Queries that wait in the gateway: a binding's decisions carried out, on the event loop's clock.

A :class:`~workers.dispatch.binding.Binding` is pure; this is what is thin around it. After every call it sends
the batches that were granted, ends the queries that were refused, and sees that it is woken in time.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from workers import log
from workers.alarm import Alarm
from workers.dispatch.binding import Binding, Decisions, Dispatch, QueryClass, ServiceTerms
from workers.dispatch.bindings import create
from workers.dispatch.options import OptionSet
from workers.dispatch.stacks import DEFAULT
from workers.protocol import shapes
from workers.protocol.frames import ExecutorState
from workers.protocol.specs import ApplicationSpec

from .in_flight import InFlightBatch, InFlightQuery
from .metrics import GatewayMetrics

logger = log.get("gateway.binding")

#: what is due within this time is due now: it would be over by the time that an alarm has rung
SOON_S = 0.00005
#: a device that could not be sent a batch gets nothing for so long
REST_S = 0.1


class Carrier(Protocol):
    """Who carries decisions out. Called from the event loop; must not raise."""

    def grant(self, batch: Dispatch, now: float) -> bool:
        """Send a batch to its device; False where that is impossible just now."""

    def refused(self, flight: InFlightQuery) -> None:
        """No device can answer the query in time."""

    def usable(self, device: str) -> bool:
        """Whether the device is connected and takes queries."""


class BindingDriver:
    """Holds queries until a device is about to run them. A flight given to :meth:`submit` is granted or refused, by the
    carrier, exactly once, unless it is withdrawn or declined meanwhile."""

    def __init__(self, carrier: Carrier, metrics: GatewayMetrics):
        self._carrier = carrier
        self._metrics = metrics
        self.stack = DEFAULT
        self._binding: Binding = create(DEFAULT)
        self._held: dict[int, InFlightQuery] = {}
        #: held, but not bound yet
        self._arrived: list[InFlightQuery] = []
        #: what a binding that takes over must know
        self._terms: Mapping[str, ServiceTerms] = {}
        self._menus: dict[str, Mapping[QueryClass, OptionSet]] = {}
        self._rtts: dict[str, float] = {}
        self._up: set[str] = set()
        self._under_way: dict[InFlightBatch, None] = {}
        self._wake_at = math.inf
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self._rang)

    def use(self, stack: str, now: float) -> None:
        """Bind by the stack of that name from now on. Queries that wait are bound anew, those under way end as they
        would have.

        Raises:
            UnknownStack: there is none of that name; the present one stays.
        """
        if stack == self.stack:
            return
        self._binding, self.stack = create(stack), stack
        binding = self._binding
        self._act(binding.configured(self._terms, now), now)
        for device, menus in self._menus.items():
            binding.rtt_changed(device, self._rtts.get(device, 0.0))
            self._act(binding.offered(device, menus, now), now)
            ends = [one.batch.end for one in self._under_way if one.batch.device_name == device]
            self._act(binding.device_changed(device, now, device in self._up, max(ends, default=None)), now)
        unbound = {flight.id for flight in self._arrived}
        waiting = [flight for flight in self._held.values() if flight.id not in unbound]
        for flight in waiting:
            flight.reservation, flight.deadline = None, flight.due
        self._act(binding.arrived(waiting, now), now)
        logger.info("stack_switched", stack=stack, rebound=len(waiting))

    # --- what may be held ---------------------------------------------------------------------------------------------

    @property
    def held(self) -> list[InFlightQuery]:
        """Queries that wait here."""
        return list(self._held.values())

    def expired(self, now: float) -> list[InFlightQuery]:
        """Those that wait here for longer than they should."""
        return [flight for flight in self._held.values() if flight.expires <= now]

    def __len__(self) -> int:
        return len(self._held)

    # --- what is known of devices -------------------------------------------------------------------------------------

    def configure(self, applications: Mapping[str, ApplicationSpec], now: float) -> None:
        """Take over the applications; queries held for others are refused. Those of size classes that are no more
        are booked anew, as soon as devices offer what there is instead."""
        terms = self._terms = {
            name: ServiceTerms(spec.slo_s, spec.late == "serve", shapes.classes(spec))
            for name, spec in applications.items()
        }
        moved = [
            flight
            for flight in self._held.values()
            if flight.spec.name in terms and flight.query_class.size not in terms[flight.spec.name].sizes
        ]
        for flight in moved:
            self._act(self._binding.withdrawn(flight, now), now)
            size = shapes.class_holding(applications[flight.spec.name], flight.query_class.size)
            flight.query_class = flight.query_class._replace(size=size)
        self._act(self._binding.configured(terms, now), now)
        waiting = {flight.id for flight in self._arrived}
        for flight in moved:
            # Some may have been dispatched as others left their batches.
            if flight.id in self._held and flight.id not in waiting:
                self.submit(flight)

    def offer(self, device: str, menus: Mapping[QueryClass, OptionSet], now: float) -> None:
        """What the device can run now."""
        self._menus[device] = menus
        self._act(self._binding.offered(device, menus, now), now)

    def set_up(self, device: str, up: bool, now: float) -> None:
        """Whether the device takes queries; what is booked on one that does not is booked elsewhere."""
        if up == (device in self._up):
            return
        if up:
            self._up.add(device)
        else:
            self._up.discard(device)
        self._act(self._binding.device_changed(device, now, up=up), now)

    def refresh(self, device: str, now: float) -> None:
        """Whether the device takes queries may have changed."""
        self.set_up(device, self._carrier.usable(device), now)

    def heard(self, device: str, state: ExecutorState, now: float) -> None:
        """A device told its state."""
        self.refresh(device, now)
        menus = self._menus.get(device, {})
        # Where this gateway has granted nothing, what waits there is others': the dispatcher sees to that.
        work_s = 0.0
        for name, rows in state.queued.items():
            menu = menus.get(QueryClass(name))
            if menu is not None:
                work_s += menu.options[0].seconds(rows)
        self._act(self._binding.device_changed(device, now, busy_until=now + state.busy_s + work_s), now)

    def set_rtt(self, device: str, rtt_s: float) -> None:
        """Seconds to the device and back."""
        self._rtts[device] = rtt_s
        self._binding.rtt_changed(device, rtt_s)

    def lost(self, device: str, now: float) -> None:
        """The device is gone; the caller brings back by :meth:`declined` what was under way there."""
        self._up.discard(device)
        for under_way in [one for one in self._under_way if one.batch.device_name == device]:
            del self._under_way[under_way]
        self._act(self._binding.lost(device, now), now)

    def close(self) -> None:
        """Wake up no more."""
        self._alarm.close()

    # --- queries ------------------------------------------------------------------------------------------------------

    def submit(self, flight: InFlightQuery) -> None:
        """Hold a query. It is booked once all that has arrived in this turn of the event loop is here."""
        if not self._arrived:
            self._loop.call_soon(self._book)
        self._held[flight.id] = flight
        self._arrived.append(flight)

    def _book(self) -> None:
        arrived, self._arrived = self._arrived, []
        held = self._held
        arrivals = [flight for flight in arrived if flight.id in held]
        if not arrivals:
            return
        now = time.monotonic()
        started = time.perf_counter()
        decisions = self._binding.arrived(arrivals, now)
        self._metrics.decision.observe((), (time.perf_counter() - started) / len(arrivals), len(arrivals))
        self._act(decisions, now)

    def withdraw(self, flight: InFlightQuery, now: float) -> bool:
        """Forget a query that waits here; False if it does not."""
        if self._held.pop(flight.id, None) is None:
            return False
        self._act(self._binding.withdrawn(flight, now), now)
        return True

    def probe(self, flight: InFlightQuery, now: float) -> bool:
        """Run a refused query on an idle device all the same; False where there is none for it."""
        decisions = self._binding.probe(flight, now)
        if not decisions.dispatches:
            return False
        self._act(decisions, now)
        return True

    def completed(self, flights: Sequence[InFlightQuery], now: float, rows: int = 0, held_s: float = 0.0) -> None:
        """Granted queries of one batch have their answers, or none will come. ``rows`` and ``held_s`` are the batch's,
        where it ran."""
        under_way: InFlightBatch | None = flights[0].batch
        current = under_way is not None and under_way.binding is self._binding
        for flight in flights:
            if flight.batch is not under_way:
                # No executor answers two batches at once; if one does, neither is left without an end.
                self.completed([flight], now)
            elif under_way is not None:
                flight.batch = None
                under_way.left -= 1
                if not current:
                    flight.reservation = None
        if under_way is None:
            return
        if held_s > 0:
            under_way.ran = rows, held_s
        if not under_way.left:
            self._ended(under_way, now)

    def _ended(self, under_way: InFlightBatch, now: float) -> None:
        if under_way not in self._under_way:
            return
        del self._under_way[under_way]
        if under_way.binding is not self._binding:
            return
        batch = under_way.batch
        # A batch that ran with fewer rows than expected says nothing about the time that was expected.
        run_s = under_way.ran[1] if under_way.ran is not None and under_way.ran[0] == batch.rows else None
        self._act(self._binding.finished(batch, now, run_s), now)

    def abandoned(self, flight: InFlightQuery, now: float) -> None:
        """Nobody waits any more for the answer to a granted query. What runs is not stopped by that: one that nobody
        waits for keeps its device until it is expected to end."""
        under_way: InFlightBatch | None = flight.batch
        if under_way is None:
            return
        self._let_go(flight)
        under_way.left -= 1
        if under_way.left:
            return
        if under_way.ran is not None:
            # Others of its queries have their answers: it has run.
            self._ended(under_way, now)
        else:
            rest_s = under_way.batch.end - now
            self._loop.call_later(max(0.0, rest_s), self._expected_end, under_way)

    def _expected_end(self, under_way: InFlightBatch) -> None:
        self._ended(under_way, time.monotonic())

    def _let_go(self, flight: InFlightQuery) -> None:
        """The query is in no batch any more. What another binding knows of it is of no use to this one."""
        under_way, flight.batch = flight.batch, None
        if under_way is not None and under_way.binding is not self._binding:
            flight.reservation = None

    def declined(self, flights: Iterable[InFlightQuery], now: float) -> None:
        """Hold queries again that a device gave back, as far as their time lasts."""
        flights = list(flights)
        for flight in flights:
            self._let_go(flight)
        self._held.update((flight.id, flight) for flight in flights)
        self._act(self._binding.returned(flights, now), now)

    # --- carrying out -------------------------------------------------------------------------------------------------

    def _act(self, decisions: Decisions, now: float) -> None:
        """Carry decisions out."""
        self._wake_at = decisions.wake_at
        if self._wake_at < self._alarm.at:
            self._alarm.set(self._wake_at)
        for batch in decisions.dispatches:
            self._grant(batch, now)
        for flight in decisions.refusals:
            if self._held.pop(flight.id, None) is not None:
                self._carrier.refused(flight)

    def _grant(self, batch: Dispatch, now: float) -> None:
        under_way = InFlightBatch(batch, self._binding)
        held = self._held
        flights: list[InFlightQuery] = batch.queries  # type: ignore[assignment]
        for flight in flights:
            held.pop(flight.id, None)
            flight.batch = under_way
        if self._carrier.grant(batch, now):
            self._under_way[under_way] = None
            self._metrics.granted(batch.rows)
            return
        device: str = batch.device_name
        self._up.discard(device)
        self._act(self._binding.device_changed(device, now, up=False), now)
        self._act(self._binding.finished(batch, now), now)
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
        now, at = time.monotonic(), self._wake_at
        if at - now > SOON_S:
            if at != self._alarm.at:
                self._alarm.set(at)
            return
        self._act(self._binding.wake(max(now, at)), now)
