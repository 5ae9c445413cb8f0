"""Drives a binding on the event loop's clock, and carries out its decisions.

A :class:`~workers.dispatch.binding.Binding` is pure. After every call to it, dispatched batches are sent, refused
queries are ended, and the next wake-up is set.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from workers import log
from workers.alarm import Alarm
from workers.dispatch.binding import Binding, Decisions, Dispatch, QueryClass, ServiceTerms
from workers.dispatch.bindings import create
from workers.dispatch.latency_correction import LearnedLatencies
from workers.dispatch.options import OptionSet
from workers.dispatch.stacks import DEFAULT
from workers.protocol import shapes
from workers.protocol.frames import ExecutorState
from workers.protocol.specs import ApplicationSpec

from .in_flight import InFlightBatch, InFlightQuery
from .metrics import GatewayMetrics

logger = log.get("gateway.binding_driver")

#: seconds within which a wake-up is due now, since an alarm would come later
SOON_S = 0.00005
#: seconds until a device that could not be sent a batch is tried again
RETRY_S = 0.1


class BindingDriver:
    """Holds queries until their batch is dispatched.

    The core (:class:`.core.Core`) carries decisions out: ``dispatch``, ``refused_by_binding``, ``usable``.

    A flight given to :meth:`submit` is dispatched or refused by the core exactly once, unless it is withdrawn or
    declined meanwhile.
    """

    def __init__(self, core: Any, metrics: GatewayMetrics):
        self._core = core
        self._metrics = metrics
        self.stack = DEFAULT
        self._binding: Binding = create(DEFAULT)
        self._held: dict[int, InFlightQuery] = {}
        #: held queries that the binding has not seen
        self._arrived: list[InFlightQuery] = []
        #: the state that a binding needs at a switch
        self._service_terms: Mapping[str, ServiceTerms] = {}
        self._option_sets: dict[str, Mapping[QueryClass, OptionSet]] = {}
        self._rtts: dict[str, float] = {}
        self._up: set[str] = set()
        self._in_flight: dict[InFlightBatch, None] = {}
        self._wake_at = math.inf
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self._rang)

    def use(self, stack: str, now: float) -> None:
        self._binding, self.stack = create(stack), stack
        binding = self._binding
        # Of what is under way the new binding knows only until when it occupies its device.
        busy_until: dict[str, float] = {}
        for in_flight in self._in_flight:
            device: str = in_flight.batch.device_name
            busy_until[device] = max(busy_until.get(device, -math.inf), in_flight.batch.end)
            for flight in in_flight.batch.queries:
                if flight.batch is in_flight:
                    flight.batch = flight.reservation = None
        self._in_flight.clear()
        self._act(binding.configured(self._service_terms, now), now)
        for device in self._option_sets:
            binding.rtt_changed(device, self._rtts.get(device, 0.0))
        self._act(binding.offered(self._option_sets, now), now)
        for device in self._option_sets:
            self._act(binding.device_changed(device, now, device in self._up, busy_until.get(device)), now)
        unbound = {flight.id for flight in self._arrived}
        waiting = [flight for flight in self._held.values() if flight.id not in unbound]
        for flight in waiting:
            flight.reservation, flight.deadline = None, flight.due
        self._act(binding.arrived(waiting, now), now)
        logger.info("stack_switched", stack=stack, rebound=len(waiting))

    # --- held queries -------------------------------------------------------------------------------------------------

    @property
    def held(self) -> list[InFlightQuery]:
        return list(self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    # --- applications and devices -------------------------------------------------------------------------------------

    def configure(self, applications: Mapping[str, ApplicationSpec], now: float) -> None:
        """Replace applications: refuse others' queries, and move those of gone classes."""
        terms = self._service_terms = {
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
            # Withdrawing one may have dispatched another.
            if flight.id in self._held and flight.id not in waiting:
                self.submit(flight)

    def set_options(self, options: Mapping[str, Mapping[QueryClass, OptionSet]], now: float) -> None:
        self._option_sets.update(options)
        self._act(self._binding.offered(options, now), now)

    def in_use(self, device: str) -> bool:
        return device in self._up

    def set_up(self, device: str, up: bool, now: float) -> None:
        if up == (device in self._up):
            return
        if up:
            self._up.add(device)
        else:
            self._up.discard(device)
        self._act(self._binding.device_changed(device, now, up=up), now)

    def refresh(self, device: str, now: float) -> None:
        self.set_up(device, self._core.usable(device), now)

    def reported(self, device: str, state: ExecutorState, now: float) -> None:
        if state.learned is not None:
            self._binding.inherit(device, LearnedLatencies(*msgspec.structs.astuple(state.learned)))
        self.refresh(device, now)
        if self._at(device):
            # The binding expects these batches; counted again, they would hold the device beyond their end.
            return
        option_sets = self._option_sets.get(device, {})
        work_s = 0.0
        for name, rows in state.queued.items():
            option_set = option_sets.get(QueryClass(name))
            if option_set is not None:
                work_s += option_set.options[0].seconds(rows)
        self._act(self._binding.device_changed(device, now, busy_until=now + state.busy_s + work_s), now)

    def set_rtt(self, device: str, rtt_s: float) -> None:
        self._rtts[device] = rtt_s
        self._binding.rtt_changed(device, rtt_s)

    def learned(self, device: str) -> LearnedLatencies | None:
        return self._binding.learned(device)

    def lost(self, device: str, now: float) -> None:
        """Handle a lost device; the caller returns its queries by :meth:`declined`."""
        self._up.discard(device)
        for in_flight in self._at(device):
            del self._in_flight[in_flight]
            for flight in in_flight.batch.queries:
                if flight.batch is in_flight:
                    flight.batch = None
        self._act(self._binding.lost(device, now), now)

    def close(self) -> None:
        self._alarm.close()

    def _at(self, device: str) -> list[InFlightBatch]:
        return [in_flight for in_flight in self._in_flight if in_flight.batch.device_name == device]

    # --- queries ------------------------------------------------------------------------------------------------------

    def submit(self, flight: InFlightQuery) -> None:
        """Hold a query until the binding gets all arrivals of this event loop turn."""
        if not self._arrived:
            self._loop.call_soon(self._hand_over)
        self._held[flight.id] = flight
        self._arrived.append(flight)

    def _hand_over(self) -> None:
        arrived, self._arrived = self._arrived, []
        held = self._held
        arrivals = [flight for flight in arrived if flight.id in held]
        if not arrivals:
            return
        now = time.monotonic()
        self._act(self._binding.arrived(arrivals, now), now)

    def withdraw(self, flight: InFlightQuery, now: float) -> bool:
        """Forget a query that waits here; False if it does not wait."""
        if self._held.pop(flight.id, None) is None:
            return False
        self._act(self._binding.withdrawn(flight, now), now)
        return True

    def probe(self, flight: InFlightQuery, now: float) -> bool:
        """Dispatch a refused query to an idle device all the same; False if there is none."""
        decisions = self._binding.probe(flight, now)
        if not decisions.dispatches:
            return False
        self._act(decisions, now)
        return True

    def completed(self, flights: Sequence[InFlightQuery], now: float, rows: int = 0, occupied_s: float = 0.0) -> None:
        for flight in flights:
            in_flight: InFlightBatch | None = flight.batch
            if in_flight is None:
                continue
            flight.batch = None
            in_flight.left -= 1
            if occupied_s > 0:
                in_flight.ran = rows, occupied_s
            if not in_flight.left:
                self._ended(in_flight, now)

    def _ended(self, in_flight: InFlightBatch, now: float) -> None:
        if in_flight not in self._in_flight:
            return
        del self._in_flight[in_flight]
        batch = in_flight.batch
        # A run of fewer rows than expected does not test the expected time.
        run_s = in_flight.ran[1] if in_flight.ran is not None and in_flight.ran[0] == batch.rows else None
        self._act(self._binding.finished(batch, now, run_s), now)

    def withdraw_dispatched(self, flight: InFlightQuery, now: float) -> None:
        """Handle a withdrawn query of a dispatched batch.

        Its run is not stopped: a batch without queries occupies its device until its expected end.
        """
        in_flight, flight.batch = flight.batch, None
        if in_flight is None:
            return
        in_flight.left -= 1
        if in_flight.left:
            return
        if in_flight.ran is not None:
            # Other queries of it have their answers, so it has run.
            self._ended(in_flight, now)
        else:
            rest_s = max(0.0, in_flight.batch.end - now)
            self._loop.call_later(rest_s, lambda: self._ended(in_flight, time.monotonic()))

    def declined(self, flights: Sequence[InFlightQuery], now: float) -> None:
        """Hold declined queries again; the binding refuses those without time."""
        for flight in flights:
            flight.batch = None
        self._held.update((flight.id, flight) for flight in flights)
        self._act(self._binding.returned(flights, now), now)

    # --- carrying out -------------------------------------------------------------------------------------------------

    def _act(self, decisions: Decisions, now: float) -> None:
        self._wake_at = decisions.wake_at
        if self._wake_at < self._alarm.at:
            self._alarm.set(self._wake_at)
        for batch in decisions.dispatches:
            self._dispatch(batch, now)
        for flight in decisions.refusals:
            if self._held.pop(flight.id, None) is not None:
                self._core.refused_by_binding(flight)

    def _dispatch(self, batch: Dispatch, now: float) -> None:
        in_flight = InFlightBatch(batch, len(batch.queries))
        held = self._held
        flights: list[InFlightQuery] = batch.queries  # type: ignore[assignment]
        for flight in flights:
            held.pop(flight.id, None)
            flight.batch = in_flight
        if self._core.dispatch(batch, now):
            self._in_flight[in_flight] = None
            self._metrics.batch_rows.observe((), batch.rows)
            return
        device: str = batch.device_name
        self._up.discard(device)
        self._act(self._binding.device_changed(device, now, up=False), now)
        self._act(self._binding.finished(batch, now), now)
        self.declined(flights, now)
        self._loop.call_later(RETRY_S, self._retry, device)

    def _retry(self, device: str) -> None:
        self.refresh(device, time.monotonic())

    def _rang(self) -> None:
        # After queries that arrive in this turn of the loop.
        self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        if self._arrived:
            self._hand_over()
        now, at = time.monotonic(), self._wake_at
        if at - now > SOON_S:
            if at != self._alarm.at:
                self._alarm.set(at)
            return
        self._act(self._binding.wake(max(now, at)), now)
