"""The core: holds queries until their batches are dispatched, and decides on them.

The life of a query:

1.  A front checks it, stamps its deadline and submits it (:meth:`Core.submit`).
2.  Its constraints become a class: the set of permitted variants.
3.  Inputs that were under way at a crash are rejected or wait for a trial (:mod:`.suspects`).
4.  It is held with all that arrived in the same turn of the event loop (:mod:`.binding_driver`).
5.  The binding (:mod:`workers.dispatch`) schedules it, or refuses it: then an idle device is probed, or it ends.
6.  When its device is nearly free, its batch is dispatched there (:mod:`.in_flight_table`).
7.  The executor runs the batch and answers (:meth:`Core.results`); the binding dispatches what comes next.
8.  The front that it came from hands the answer to its edge.
9.  Declined, it is held again while its time lasts (:meth:`Core.refused_by_device`); its link lost, once more; its
    executor crashed or its run stopped, once more and alone (:meth:`Core.lost`, :meth:`Core.ended`).
10. Without any answer, it is given up when it expires (:meth:`Core.sweep`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from workers import log
from workers.dispatch.binding import Dispatch, QueryClass
from workers.dispatch.options import OptionSet
from workers.protocol.control import OVERLOAD_BUDGET_SHARE
from workers.protocol.endings import Ending
from workers.protocol.frames import ExecutorState, LearnedOfDevice, Refusal, Results, Withdraw
from workers.protocol.framing import FrameError
from workers.protocol.results import Answer as PackedAnswer
from workers.protocol.results import answers as split_results
from workers.protocol.results import without_rows

from .binding_driver import BindingDriver
from .bursts import BurstDetector
from .catalog import Catalog
from .constraints import Constraints
from .errors import GatewayError, HandedBack, Invalid, ModelFailed, Overloaded, TimedOut, Unavailable
from .executors import Executors
from .in_flight import InFlightQuery, Run
from .in_flight_table import InFlightTable
from .metrics import GatewayMetrics
from .network import Network
from .suspects import Suspects

logger = log.get("gateway.core")

#: losses of the link to its device that a query survives
MAX_LOSSES = 1
#: seconds without a message from a device that owes answers, after which it gets no more batches until it sends one
OWES_S = 0.25
#: seconds without a message after which an executor that owes answers is considered stuck: longer than its watchdog
#: needs for a batch in the event loop
SILENT_S = 5.0


class Core:
    """Queries of all fronts until they end.

    It carries out what the binding decides (:class:`~.binding_driver.BindingDriver`).
    """

    def __init__(self, executors: Executors, bursts: BurstDetector, metrics: GatewayMetrics) -> None:
        self.catalog = Catalog()
        self._executors = executors
        self._bursts = bursts
        self._driver = BindingDriver(self, metrics)
        self.network = Network(self._driver.set_rtt)
        self._sent = InFlightTable(executors, metrics, self.network)
        self._refused: dict[str, int] = {}
        self._retired = False
        #: queries that the devices which this core has by now cannot answer, while it takes over from another core
        self._postponed: dict[int, InFlightQuery] = {}
        self._constraints = Constraints(self.catalog, executors)
        self._suspects = Suspects(self._driver)
        #: since when devices owe a message that get no batches until they send one
        self._quiet: dict[str, float] = {}
        #: by device whose link was lost, until its ending is known: the reason, its queries, and withdrawn queries that
        #: may have run there
        self._lost: dict[str, tuple[str, list[InFlightQuery], list[InFlightQuery]]] = {}

    # --- fronts -------------------------------------------------------------------------------------------------------

    def submit(self, flight: InFlightQuery) -> None:
        if self._retired:
            flight.front.finish(flight, HandedBack())
        else:
            self._bursts.arrived(flight.spec.name, flight.rows, flight.arrived)
            self._decide(flight)

    def _decide(self, flight: InFlightQuery) -> None:
        error: GatewayError | None = None
        if flight.variant is not None or flight.query.terms.min_accuracy is not None:
            try:
                self._constraints.restrict(flight)
            except GatewayError as refused:
                error = refused
        if error is None and self._suspects.active:
            error = self._suspects.judge(flight, flight.arrived)
        if error is not None:
            if not isinstance(error, Unavailable) or not self._pass_on(flight, time.monotonic()):
                flight.front.finish(flight, error)
        elif flight.suspected:
            self._suspects.submit(flight, time.monotonic())
        else:
            self._driver.submit(flight)

    def _pass_on(self, flight: InFlightQuery, now: float) -> bool:
        """Leave a query to the next core where this one stops, or to devices still to come; False: there are none."""
        if self._retired:
            flight.front.finish(flight, HandedBack())
        elif now < flight.due and self._executors.taking_over(now):
            flight.reservation = None
            self._postponed[flight.id] = flight
        else:
            return False
        return True

    def _decide_postponed(self) -> None:
        postponed, self._postponed = self._postponed, {}
        for flight in postponed.values():
            self._decide(flight)

    def withdraw(self, flight: InFlightQuery, now: float) -> None:
        device = flight.device
        if self._postponed.pop(flight.id, None) is not None:
            return
        if flight.suspected:
            self._suspects.withdraw(flight)
        if device is None:
            self._driver.withdraw(flight, now)
        elif self._sent.withdraw(device, flight.id, now) is not None:
            self._executors.send(device, Withdraw(flight.id))
            self._driver.withdraw_dispatched(flight, now)
            if flight.tried_alone and device not in self._quiet:
                self._driver.refresh(device, now)

    @property
    def flights(self) -> list[InFlightQuery]:
        lost = [flight for _, flights, _ in self._lost.values() for flight in flights]
        return [*self.waiting, *self._suspects.waiting, *self._sent.flights(), *lost]

    @property
    def waiting(self) -> list[InFlightQuery]:
        return [*self._driver.held, *self._postponed.values()]

    @property
    def outstanding(self) -> dict[str, int]:
        return self._sent.outstanding

    @property
    def held(self) -> int:
        return len(self._driver) + len(self._postponed)

    @property
    def suspect_inputs(self) -> int:
        return self._suspects.inputs

    def retire(self) -> None:
        """Decide nothing more, and hand back what is held; devices still answer."""
        self._retired, now = True, time.monotonic()
        for device in self._executors.states():
            self._driver.refresh(device, now)
        for flight in [*self.waiting, *self._suspects.waiting]:
            self.withdraw(flight, now)
            flight.front.finish(flight, HandedBack())

    def close(self) -> None:
        self._driver.close()

    # --- applications and devices -------------------------------------------------------------------------------------

    def configure(self, catalog: Catalog, now: float) -> None:
        """Replace the catalog; held queries of applications that it lacks are refused."""
        self._decide_postponed()
        self.catalog = catalog
        self._constraints.adopt(catalog)
        self._driver.configure(catalog.applications, now)

    def use(self, stack: str, now: float) -> None:
        if stack != self._driver.stack:
            self._driver.use(stack, now)
            for _, flights, _ in self._lost.values():
                for flight in flights:
                    flight.reservation = None

    def set_options(self, options: Mapping[str, Mapping[QueryClass, OptionSet]], now: float) -> None:
        self._driver.set_options(options, now)

    def reported(self, device: str, state: ExecutorState, now: float) -> None:
        self._constraints.reported(device, state)
        self._driver.set_rtt(device, self.network.rtts[device].seconds)
        self._driver.reported(device, state, now)
        self._decide_postponed()

    def in_use(self, device: str) -> bool:
        return self._driver.in_use(device)

    def learned(self, device: str) -> LearnedOfDevice | None:
        learned = self._driver.learned(device)
        return None if learned is None else LearnedOfDevice(*learned)

    # --- decisions carried out ----------------------------------------------------------------------------------------

    def dispatch(self, batch: Dispatch, now: float) -> bool:
        if not self._sent.dispatch(batch, now):
            return False
        if batch.queries[0] is self._suspects.on_trial:
            asyncio.get_running_loop().call_soon(self._driver.refresh, batch.device_name, now)
        return True

    def usable(self, device: str) -> bool:
        executor = self._executors.get(device)
        if self._retired or executor is None or executor.state is None:
            return False
        if self._suspects.on_trial is not None and self._suspects.on_trial.device == device:
            return False
        return executor.lease is None or not executor.lease.reclaimed

    def refused_by_binding(self, flight: InFlightQuery) -> None:
        """End a held query that no device can answer in time, or probe a device with it."""
        now = time.monotonic()
        if self._pass_on(flight, now) or (not flight.tries and self._driver.probe(flight, now)):
            return
        spec = flight.spec
        if flight.error is None and not self._executors.warm(spec.name):
            flight.error = Unavailable(f"model {spec.name!r}: no device has a warm variant of it now; try again")
        elif flight.due - flight.arrived >= OVERLOAD_BUDGET_SHARE * spec.slo_s:
            self._refused[spec.name] = self._refused.get(spec.name, 0) + flight.rows
        flight.front.finish(flight, flight.error or self._too_late(flight))

    def take_refused(self) -> dict[str, int]:
        """Refused rows by application since the last call."""
        taken, self._refused = self._refused, {}
        return taken

    def _too_late(self, flight: InFlightQuery) -> GatewayError:
        text = self._constraints.never(flight.spec, flight.query)
        if text is None:
            within_ms = (flight.due - flight.arrived) * 1e3
            text = f"model {flight.spec.name!r}: cannot be answered within {within_ms:g} ms"
        return Overloaded(f"{text}; try again")

    # --- what executors report ----------------------------------------------------------------------------------------

    def results(self, device: str, results: Results, body: memoryview) -> None:
        completed = self._sent.complete_all(device, results.ids)
        flights = [flight for flight in completed if flight is not None]
        if len(flights) < len(completed):
            for id in results.ids:
                gone = self._sent.withdrawn(device, id)
                if gone is not None and gone.suspected:
                    self._suspects.clear(gone)
        if not flights:
            return
        now = time.monotonic()
        if self._quiet:
            self._look_at_quiet(now)
        sent_at, run_s, occupied_s = flights[0].sent_at, results.run_s, results.occupied_s
        try:
            answers = split_results(results, body)
            if not flights[0].spec.signature.batch:
                answers = [(without_rows(headers), parts) for headers, parts in answers]
        except FrameError as error:
            self._broken(device, flights, error, now)
            return
        # First, so that the device has its next batch while answers are rendered.
        self._driver.completed(flights, now, results.batch_rows, occupied_s)
        run = Run(
            device,
            results.variant,
            results.accuracy,
            results.accuracy_normalized,
            run_s,
            results.batch_rows,
            occupied_s,
            now - sent_at - results.queue_s - occupied_s,
        )
        self._deliver(completed, flights, run, results.queue_s, answers)
        around_s = time.monotonic() - sent_at - results.queue_s - occupied_s
        self.network.learn(device, flights, len(body), around_s, now)
        if self._suspects.active:
            for flight in flights:
                if flight.suspected:
                    self._suspects.clear(flight)
            self._try_next_suspect(device, now)

    def _deliver(
        self,
        completed: Sequence[InFlightQuery | None],
        flights: Sequence[InFlightQuery],
        run: Run,
        queue_s: float,
        answers: Sequence[PackedAnswer],
    ) -> None:
        first = flights[0].front
        if len(flights) == 1 or all([flight.front is first for flight in flights]):
            first.deliver(completed, run, queue_s, answers)
            return
        for front in dict.fromkeys([flight.front for flight in flights]):
            places = [place for place, flight in enumerate(completed) if flight is not None and flight.front is front]
            front.deliver([completed[place] for place in places], run, queue_s, [answers[place] for place in places])

    def _broken(self, device: str, flights: Sequence[InFlightQuery], error: FrameError, now: float) -> None:
        self._driver.completed(flights, now)
        for flight in flights:
            flight.front.finish(flight, ModelFailed(f"device {device}: broken answer: {error}"))
        self._try_next_suspect(device, now)

    def _try_next_suspect(self, device: str, now: float) -> None:
        if self._suspects.active:
            self._driver.refresh(device, now)
            self._suspects.try_next(now)

    def reclaimed(self, device: str) -> None:
        self._driver.refresh(device, time.monotonic())

    def refused_by_device(self, device: str, refusal: Refusal) -> None:
        """Handle a query without an answer: declined, failed, stopped or invalid."""
        now = time.monotonic()
        flight = self._sent.completed(device, refusal.id)
        withdrawn = flight is None
        if withdrawn:
            flight = self._sent.withdrawn(device, refusal.id)
            if flight is None:
                return
        else:
            flight.error = _error_of(device, refusal)
            self._driver.completed([flight], now)
        if refusal.code == "stopped":
            self._suspects.stopped(flight, f"device {device}: {refusal.message}", not refusal.retryable, now)
        elif flight.suspected and refusal.code == "failed":
            self._suspects.clear(flight)
        if flight.answer is not None and refusal.code != "stopped":
            if refusal.retryable:
                self._driver.declined([flight], now)
            else:
                flight.front.finish(flight, flight.error)
        self._try_next_suspect(device, now)

    def lost(self, device: str, reason: str) -> None:
        now = time.monotonic()
        self._constraints.lost(device)
        withdrawn = self._sent.all_withdrawn(device, now)
        self._lost[device] = reason, self._sent.lost(device), withdrawn
        # Before anything is scheduled again, so that nothing is scheduled there.
        self._driver.lost(device, now)

    def ended(self, device: str, ending: Ending | None) -> None:
        """Settle the queries of a lost device.

        Args:
            ending: how it ended; None: only its connection did.
        """
        now = time.monotonic()
        reason, flights, withdrawn = self._lost.pop(device)
        withdrawn += [flight for flight in flights if flight.answer is None]
        flights = [flight for flight in flights if flight.answer is not None]
        if ending is not None:
            reason = ending.reason
        if ending is not None and ending.crashed:
            self._suspects.crashed(device, reason, flights, withdrawn, now)
            self._suspects.try_next(now)
            return
        again = []
        for flight in flights:
            flight.losses += 1
            flight.error = Unavailable(f"device {device}: was lost with the query in flight ({reason}); try again")
            if flight.due <= now and flight.spec.late != "serve":
                flight.error = _no_answer(flight, f"device {device}", now)
            if flight.tried_alone or flight.losses > MAX_LOSSES:
                flight.front.finish(flight, flight.error)
            else:
                again.append(flight)
        self._driver.declined(again, now)
        self._suspects.try_next(now)
        if flights:
            logger.warning("queries_rerouted", device=device, queries=len(flights))

    # --- time ---------------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        self._look_at_quiet(now)
        self._suspects.sweep(now)
        for flight in self.flights:
            if flight.expires <= now:
                self._timed_out(flight)
        self._decide_postponed()

    def _timed_out(self, flight: InFlightQuery) -> None:
        if flight.answer is None:
            return
        now = time.monotonic()
        device = flight.device
        executor = self._executors.get(device) if device is not None else None
        # A query's time-out may be shorter than the time that tells a stuck device from a busy one, so the time since
        # the device's last message counts. Until its next one it gets no batches.
        owed_since = executor.owed_since if executor is not None else None
        if device is not None and owed_since is not None and now - owed_since >= OWES_S:
            self._quiet[device] = owed_since
            self._driver.set_up(device, False, now)
            left = max(0.0, owed_since + SILENT_S - now)
            asyncio.get_running_loop().call_later(left, self._silent, device, owed_since)
        flight.expires = self._sent.give_up_at(flight)
        if now < flight.expires:
            return
        self.withdraw(flight, now)
        who = f"device {device}" if device is not None else f"model {flight.spec.name!r}"
        flight.front.finish(flight, _no_answer(flight, who, now))

    def _look_at_quiet(self, now: float) -> None:
        for device, owed_since in list(self._quiet.items()):
            executor = self._executors.get(device)
            if executor is None or executor.owed_since != owed_since:
                del self._quiet[device]
                self._driver.refresh(device, now)

    def _silent(self, device: str, owed_since: float) -> None:
        executor = self._executors.get(device)
        if executor is not None and executor.owed_since == owed_since:
            silent_s = time.monotonic() - owed_since
            executor.drop(f"silent for {silent_s:.1f} s with queries in flight")


def _no_answer(flight: InFlightQuery, who: str, now: float) -> TimedOut:
    return TimedOut(f"{who}: no answer within {(now - flight.arrived) * 1e3:g} ms", retry_after_s=1.0)


def _error_of(device: str, refusal: Refusal) -> GatewayError:
    message = f"device {device}: {refusal.message}"
    match refusal.code:
        case "late" | "overloaded":
            return Overloaded(message)
        case "not_resident" | "not_leased" | "draining":
            return Unavailable(message)
        case "invalid":
            return Invalid(refusal.message)
        case _:
            return ModelFailed(message)
