"""The query path behind every edge: check, hold or route, relay, re-route, and exactly one answer.

Works by callbacks, without a task a query. An edge calls :meth:`DataPlane.submit` with a checked query and a function
that takes the outcome; it is called exactly once, from the event loop, unless the edge cancelled first. What it does
before it returns (rendering, handing to the socket) is part of the latency that is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workers import log
from workers.dispatch.binding import QueryClass
from workers.dispatch.menu import Menu
from workers.dispatch.routing.router import QueryRouter
from workers.dispatch.state import Batch
from workers.protocol import v2
from workers.protocol.endings import Ending
from workers.protocol.frames import ExecutorState, FrameError, Refusal, Result, Results, split_body
from workers.protocol.results import Answer as PackedAnswer
from workers.protocol.results import answers as split_results
from workers.protocol.results import check_finite
from workers.protocol.specs import ApplicationSpec

from .accounts import Accounts, Limits
from .bursts import BurstDetector
from .catalog import Catalog
from .errors import GatewayError, Invalid, ModelFailed, NotFound, Overloaded, TimedOut, Unavailable
from .executors import Executors
from .flights import Answer, Flight, Outcome, Run
from .holding import Holding
from .insisting import Insisting
from .metrics import GatewayMetrics
from .sent import Sent
from .stats import Statistics
from .trials import Trials

logger = log.get("gateway.queries")

#: devices that a query bound early is tried on at most; one that is held is, while its time lasts
MAX_TRIES = 4
#: how often a query survives the loss of the link to its device
MAX_LOSSES = 1
#: a query may be this much later than its deadline before the gateway gives up waiting, at least; its SLO if longer
GRACE_S = 0.25
#: applications that serve late answers wait this many SLOs
SERVE_SLOS = 10.0
#: an executor that owes answers and says nothing for so long is taken for stuck: longer than its watchdog takes for a
#: batch in the event loop
SILENT_S = 5.0
#: a query with less of its application's SLO left to it was its client's hurry, and says nothing about the plan
WHOLE = 0.8
#: the batch policy whose queries may be held here: it is the dispatcher that forms its batches
HELD_POLICY = "nereus"


class DataPlane:
    """Queries under way, and everything that happens to them. Also the executors' :class:`~.executors.Listener` for
    results and refusals, and :class:`~.holding.Carrier` of the decisions on queries that are held.

    ``late_binding``: queries that insist on nothing are held here until a device is about to run them, where their
    application's batch policy allows it; all others are bound to a device as they come.
    """

    def __init__(
        self,
        router: QueryRouter,
        executors: Executors,
        statistics: Statistics,
        bursts: BurstDetector,
        metrics: GatewayMetrics,
        limits: Limits,
    ):
        self.catalog = Catalog()
        self.late_binding = False
        self.accounts = Accounts(statistics, metrics, limits)
        self._router = router
        self._executors = executors
        self._bursts = bursts
        self._metrics = metrics
        self._sent = Sent(router, executors, metrics)
        self._holding = Holding(self, metrics)
        self._refused: dict[str, int] = {}
        self._insisting = Insisting(self.catalog, executors)
        self._trials = Trials(executors, self._sent, self._holding, self._insisting, self._finish, self._place)
        self._suspects = self._trials.suspects
        #: by device whose link was lost, until it is known how it ended: why, what was and may have been there, and the
        #: suspect that was tried there
        self._lost: dict[str, tuple[str, list[Flight], list[Flight], Flight | None]] = {}
        self._ids = itertools.count(1)

    # --- edges --------------------------------------------------------------------------------------------------------

    def submit(
        self,
        spec: ApplicationSpec,
        query: v2.Query,
        variant: str | None,
        read_at: float,
        answer: Callable[[Flight, Outcome], None],
        context: Any = None,
        client: str = "",
    ) -> Flight:
        """Take in a checked query; ``answer`` is called exactly once, with the flight and its outcome, perhaps before
        this returns.

        Args:
            variant: the only variant that will do, or None.
            read_at: ``time.monotonic()`` when the request was fully read; the budget runs from there.
            context: the edge's own, kept in the flight.
            client: hash of the API key that it came with.
        """
        flight = Flight(next(self._ids), spec, query, variant, read_at, answer, context)
        flight.client = client
        self._bursts.arrived(spec.name, flight.rows, read_at)
        error: GatewayError | None = self.accounts.enter(flight)
        if error is None and (variant is not None or query.terms.min_accuracy is not None):
            try:
                flight.allowed, permitted = self._insisting.permitted(spec, query, variant)
                if permitted is not None:
                    flight.query_class = flight.query_class._replace(permitted=permitted)
            except GatewayError as refused:
                error = refused
        if error is None and self._suspects.active:
            error = self._suspects.judge(flight, read_at)
        if error is not None:
            self._finish(flight, error)
            return flight
        slo_s = spec.slo_s
        grace_s = SERVE_SLOS * slo_s if spec.late == "serve" else slo_s if slo_s > GRACE_S else GRACE_S
        flight.expires = flight.due + grace_s
        if flight.incident:
            self._trials.submit(flight, time.monotonic())
        else:
            self._place(flight)
        return flight

    def _place(self, flight: Flight) -> None:
        """Hold the query, or send it to a device."""
        if self.late_binding and flight.spec.batching.policy == HELD_POLICY:
            flight.booking = None
            self._holding.submit(flight)
        else:
            self._dispatch(flight, time.monotonic())

    def cancel(self, flight: Flight) -> None:
        """The client went away: forget the query, unless it was answered."""
        if flight.answer is None:
            return
        now = time.monotonic()
        self.accounts.cancelled(flight, now)
        self._withdraw(flight, now)
        self._forget(flight)

    def give_up(self) -> None:
        """The gateway stops: whoever still waits is told so."""
        now = time.monotonic()
        # Those that are held first, so that nothing is granted to the devices that become free.
        lost = [flight for _, flights, *_ in self._lost.values() for flight in flights]
        for flight in [*self._holding.held, *self._suspects.waiting(), *self._sent.flights(), *lost]:
            self._withdraw(flight, now)
            self._finish(flight, Unavailable(Unavailable.STOPPING))

    def close(self) -> None:
        """Decide nothing more by itself."""
        self._holding.close()

    @property
    def outstanding(self) -> dict[str, int]:
        """Queries sent and not yet answered, by device."""
        return self._sent.outstanding

    @property
    def held(self) -> int:
        """Queries that wait here."""
        return len(self._holding)

    @property
    def suspect_inputs(self) -> int:
        """Inputs that are remembered, as they were under way when a device crashed."""
        return self._suspects.inputs

    # --- what is known of devices -------------------------------------------------------------------------------------

    def configure(self, catalog: Catalog, now: float) -> None:
        """Take over the catalog; queries that are held for applications that are not in it are refused."""
        self.catalog = catalog
        self._insisting.adopt(catalog)
        self._holding.configure(catalog.applications, now)

    def offer(self, device: str, menus: Mapping[QueryClass, Menu], now: float) -> None:
        """What the device can run now."""
        self._holding.offer(device, menus, now)

    def heard(self, device: str, state: ExecutorState, now: float) -> None:
        """A device told its state."""
        self._insisting.heard(device, state)
        self._holding.set_way(device, self._sent.margin(device).seconds)
        self._holding.heard(device, state, now)

    # --- holding ------------------------------------------------------------------------------------------------------

    def usable(self, device: str) -> bool:
        """Whether the device is connected and takes queries."""
        executor = self._executors.get(device)
        return executor is not None and executor.state is not None and device not in self._trials.reserved

    def grant(self, batch: Batch, now: float) -> bool:
        """Send a batch to its device; False where that is impossible just now."""
        return self._sent.grant(batch, now)

    def refused(self, flight: Flight) -> None:
        """No device can answer a held query in time, as far as the dispatcher knows."""
        if not flight.tries and self._holding.probe(flight, time.monotonic()):
            return
        if flight.error is None and not self._executors.warm(flight.spec.name):
            flight.error = self._nobody(flight)
        elif flight.due - flight.arrived >= WHOLE * flight.spec.slo_s:
            self._refused[flight.spec.name] = self._refused.get(flight.spec.name, 0) + flight.rows
        self._finish(flight, flight.error or self._too_late(flight))

    def take_refused(self) -> dict[str, int]:
        """Rows by application that no device could have answered in time, since this was last asked."""
        taken, self._refused = self._refused, {}
        return taken

    # --- routing ------------------------------------------------------------------------------------------------------

    def _dispatch(self, flight: Flight, now: float) -> None:
        """Send the query to a device, or finish it."""
        spec, query = flight.spec, flight.query
        name = spec.name
        while True:
            left = flight.due - now
            if left <= 0 and spec.late != "serve":
                self._finish(flight, flight.error or self._too_late(flight))
                return
            if flight.tries >= MAX_TRIES:
                self._finish(flight, flight.error or self._nobody(flight))
                return
            started = time.perf_counter()
            device = self._router.pick(name, now, left, query.rows, flight.tried, flight.allowed)
            self._metrics.decision.observe((), time.perf_counter() - started)
            if device is None:
                device = self._draining(flight)
            if device is None:
                self._finish(flight, flight.error or self._nobody(flight))
                return
            if self._sent.submit(device, flight, now):
                return
            now = time.monotonic()

    def _draining(self, flight: Flight) -> str | None:
        """A device that asks for nothing new, where nothing else is warm: it still takes what comes all the same, and
        a query that may be late is better than one that is lost."""
        if flight.allowed is not None or self._executors.warm(flight.spec.name):
            return None
        able = {device for device, _ in self._executors.warm(flight.spec.name, draining=True)}.difference(flight.tried)
        outstanding = self._sent.outstanding
        return min(able, key=lambda device: (outstanding.get(device, 0), device), default=None)

    def _too_late(self, flight: Flight) -> GatewayError:
        text = self._insisting.never(flight.spec, flight.query)
        if text is None:
            within_ms = (flight.due - flight.arrived) * 1e3
            text = f"model {flight.spec.name!r}: cannot be answered within {within_ms:.0f} ms"
        return Overloaded(f"{text}; try again")

    def _nobody(self, flight: Flight) -> GatewayError:
        name = flight.spec.name
        warm = self._executors.warm(name)
        if not warm:
            return Unavailable(f"model {name!r}: no device has a variant of it warm now; try again")
        return Unavailable(f"model {name!r}: none of the devices that could answer can be reached now; try again")

    # --- what executors say -------------------------------------------------------------------------------------------

    def results(self, device: str, results: Results, body: memoryview) -> None:
        """Answers to queries of one granted batch arrived."""
        landed = self._sent.landed_all(device, results.ids)
        flights = [flight for flight in landed if flight is not None]
        if len(flights) < len(landed):
            for id in results.ids:
                gone = self._sent.withdrawn(device, id)
                if gone is not None and gone.incident:
                    self._trials.answered(device, gone, time.monotonic())
        if not flights:
            return
        now = time.monotonic()
        spec, sent_at, run_s = flights[0].spec, flights[0].sent_at, results.run_s
        rows = sum([flight.rows for flight in flights])
        try:
            answers = split_results(results, body)
        except FrameError as error:
            self._broken(device, flights, error, now)
            return
        self._router.done(device, spec.name, rows, now, True, results.queue_s, run_s, results.batch_rows)
        # First, so that the device has its next batch while this one's answers are written.
        self._holding.landed(flights, now, results.batch_rows, results.held_s)
        run = Run(device, results.variant, results.accuracy, results.accuracy_normalized, run_s, results.batch_rows)
        self._deliver(landed, run, results.queue_s, answers)
        self._returned(device, time.monotonic() - sent_at - results.queue_s - (results.held_s or run_s))
        if self._suspects.active:
            for flight in flights:
                if flight.incident:
                    self._trials.answered(device, flight, now)
            self._trials.progress(now)

    def result(self, device: str, result: Result, body: memoryview) -> None:
        """An answer to a query that was bound early arrived."""
        flight = self._sent.landed(device, result.id)
        if flight is None:
            return
        now = time.monotonic()
        try:
            check_finite(result)
            parts = split_body(result.outputs, body)
        except FrameError as error:
            self._broken(device, [flight], error, now)
            return
        name, rows, held_s = flight.spec.name, flight.rows, result.held_s
        if flight.batch is not None:
            self._holding.landed([flight], now)
        self._router.done(device, name, rows, now, True, result.queue_s, result.run_s, result.batch_rows)
        run = Run(device, result.variant, result.accuracy, result.accuracy_normalized, result.run_s, result.batch_rows)
        self._deliver([flight], run, result.queue_s, [(result.outputs, parts)])
        self._returned(device, time.monotonic() - flight.sent_at - result.queue_s - (held_s or result.run_s))

    def _broken(self, device: str, flights: Sequence[Flight], error: FrameError, now: float) -> None:
        """What a device sent is no answer to these queries."""
        for flight in flights:
            self._router.done(device, flight.spec.name, flight.rows, now, False)
        self._holding.landed(flights, now)
        for flight in flights:
            self._finish(flight, ModelFailed(f"device {device}: broken answer: {error}"))
            if flight.incident:
                self._trials.undecided(device, flight, now)

    def _returned(self, device: str, around_s: float) -> None:
        """So much of the time between sending and answering was not the executor's."""
        margin = self._sent.margin(device)
        before = margin.seconds
        margin.add(around_s)
        if margin.seconds != before:
            self._holding.set_way(device, margin.seconds)

    def _deliver(
        self, flights: Sequence[Flight | None], run: Run, queue_s: float, answers: Sequence[PackedAnswer]
    ) -> None:
        """Give queries of one application their answers. ``queue_s``: from receipt at the device to the run's start."""
        latencies: list[float] = []
        late, waited, rows, name = 0, 0.0, 0, ""
        left_rows = left_bytes = left = 0
        for flight, (headers, parts) in zip(flights, answers, strict=True):
            if flight is None:
                continue
            answer, flight.answer, flight.booking = flight.answer, None, None
            assert answer is not None
            left += 1
            left_rows += flight.rows
            left_bytes += flight.query.terms.nbytes
            # Since it arrived here: on the way it was at its device's mercy, too.
            queue = queue_s + flight.sent_at - flight.arrived
            try:
                answer(flight, Answer(run, queue, headers, parts))
            except GatewayError as error:
                # The edge could not render the result and has told the client so.
                self.accounts.failed(flight, error)
                continue
            except Exception as error:
                logger.exception("answer_failed", application=flight.spec.name)
                self.accounts.failed(flight, ModelFailed(f"internal error: {type(error).__name__}"))
                continue
            done = time.monotonic()
            latencies.append(done - flight.arrived)
            late += done > flight.due
            waited += queue
            rows += flight.rows
            name = flight.spec.name
        self.accounts.leave(left, left_rows, left_bytes)
        if latencies:
            self.accounts.answered(name, run, latencies, late, waited, rows)

    def refusal(self, device: str, refusal: Refusal) -> None:
        """A query was declined; another device may do better."""
        now = time.monotonic()
        flight = self._sent.landed(device, refusal.id)
        if flight is None:
            flight = self._sent.withdrawn(device, refusal.id)
            if flight is not None and refusal.code == "stopped":
                self._trials.stopped(device, flight, None, refusal, now)
            elif flight is not None:
                self._trials.undecided(device, flight, now)
            return
        self._router.done(device, flight.spec.name, flight.rows, now, False)
        flight.error = _from_refusal(device, refusal)
        under_way = flight.batch
        if under_way is not None:
            self._holding.landed([flight], now)
        if refusal.code == "stopped":
            self._trials.stopped(device, flight, under_way, refusal, now)
        elif flight.incident:
            self._finish(flight, flight.error)
            if refusal.code == "failed":
                self._trials.answered(device, flight, now)
            else:
                self._trials.undecided(device, flight, now)
        elif not refusal.retryable:
            self._finish(flight, flight.error)
        elif under_way is not None:
            self._holding.declined([flight], now)
        elif flight.tries >= MAX_TRIES:
            self._finish(flight, flight.error)
        else:
            self._dispatch(flight, now)

    def lost(self, device: str, reason: str) -> None:
        """A device's connection ended; the router already knows that it is down. What becomes of the queries that were
        under way there is decided by :meth:`ended`."""
        now = time.monotonic()
        self._insisting.lost(device)
        withdrawn = self._sent.all_withdrawn(device, now)
        self._lost[device] = reason, self._sent.lost(device, now), withdrawn, self._trials.lost(device)
        # Before anything is booked again, so that nothing is booked there.
        self._holding.lost(device, now)

    def ended(self, device: str, ending: Ending | None) -> None:
        """A lost device crashed, ended otherwise, or only its connection was lost (None)."""
        now = time.monotonic()
        reason, flights, withdrawn, on_trial = self._lost.pop(device)
        withdrawn += [flight for flight in flights if flight.answer is None]
        held = {flight.id for flight in flights if flight.batch is not None}
        flights = [flight for flight in flights if flight.answer is not None]
        for flight in flights:
            flight.batch = None
        # Without an exit status, a suspect that was alone there is taken for the cause.
        crashed = on_trial is not None
        if ending is not None:
            reason, crashed = ending.reason, ending.crashed
        if crashed:
            self._trials.crashed(device, reason, flights, withdrawn, on_trial, now)
            return
        again = []
        for flight in flights:
            flight.losses += 1
            flight.error = Unavailable(f"device {device}: went away with the query under way ({reason}); try again")
            if flight.due <= now and flight.spec.late != "serve":
                flight.error = self._no_answer(flight, f"device {device}", now)
            if flight is on_trial or flight.losses > MAX_LOSSES:
                self._finish(flight, flight.error)
            elif flight.id in held:
                again.append(flight)
            else:
                self._dispatch(flight, now)
        self._holding.declined(again, now)
        if on_trial is not None:
            self._suspects.end(on_trial)
        if self._suspects.active:
            self._trials.progress(now)
        if flights:
            logger.warning("queries_rerouted", device=device, queries=len(flights))

    # --- endings ------------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Give up on queries that nobody has answered, nor will. To be called several times a second: that costs less
        than a timer for each."""
        for flight in [*self._holding.expired(now), *self._sent.expired(now)]:
            self._timed_out(flight)
        self._trials.sweep(now)

    def _timed_out(self, flight: Flight) -> None:
        if flight.answer is None:
            return
        now = time.monotonic()
        device = flight.device
        executor = self._executors.get(device) if device is not None else None
        # One query's time-out may be shorter than what tells a stuck device from a busy one: what counts is since when
        # the device owes any sign of life. Until it gives one, nothing is booked there.
        owed_since = executor.owed_since if executor is not None else None
        if device is not None and owed_since is not None and now - owed_since >= GRACE_S:
            self._holding.set_up(device, False, now)
            left = max(0.0, owed_since + SILENT_S - now)
            asyncio.get_running_loop().call_later(left, self._silent, device, owed_since)
        flight.expires = self._sent.patience_until(flight)
        if now < flight.expires:
            return
        self._withdraw(flight, now)
        who = f"device {device}" if device is not None else f"model {flight.spec.name!r}"
        self._finish(flight, self._no_answer(flight, who, now))

    def _no_answer(self, flight: Flight, who: str, now: float) -> TimedOut:
        return TimedOut(f"{who}: no answer within {(now - flight.arrived) * 1e3:.0f} ms", retry_after_s=1.0)

    def _silent(self, device: str, owed_since: float) -> None:
        executor = self._executors.get(device)
        if executor is not None and executor.owed_since == owed_since:
            silent_s = time.monotonic() - owed_since
            executor.drop(f"silent for {silent_s:.1f} s with queries under way")
        elif self.usable(device):
            self._holding.set_up(device, True, time.monotonic())

    def _withdraw(self, flight: Flight, now: float) -> None:
        device = flight.device
        if device is None:
            if flight.incident:
                self._trials.withdraw(flight)
            else:
                self._holding.withdraw(flight, now)
        elif self._sent.withdraw(device, flight.id, now) is not None:
            self._router.done(device, flight.spec.name, flight.rows, now, False)
            self._executors.cancel(device, flight.id)
            self._holding.abandoned(flight, now)

    def _forget(self, flight: Flight) -> Callable[[Flight, Outcome], None]:
        # A batch knows its queries: no circle is to be left for the collector.
        answer, flight.answer, flight.booking = flight.answer, None, None
        assert answer is not None
        self.accounts.leave(1, flight.rows, flight.query.terms.nbytes)
        return answer

    def _finish(self, flight: Flight, error: GatewayError) -> None:
        """End a flight in an error, unless it has ended."""
        if flight.answer is None:
            return
        answer = self._forget(flight)
        try:
            answer(flight, error)
        except Exception:
            logger.exception("answer_failed", application=flight.spec.name)
        self.accounts.failed(flight, error)


def _from_refusal(device: str, refusal: Refusal) -> GatewayError:
    message = f"device {device}: {refusal.message}"
    match refusal.code:
        case "late" | "overloaded":
            return Overloaded(message)
        case "not_resident" | "draining":
            return Unavailable(message)
        case "invalid":
            return Invalid(refusal.message)
        case _:
            return ModelFailed(message)


def parse_version(catalog: Catalog, spec: ApplicationSpec, version: str | None) -> str | None:
    """A URL's version as a planned variant's name; raises NotFound."""
    if version is None:
        return None
    if not version:
        raise NotFound("version: is empty")
    return catalog.variant(spec.name, version).name
