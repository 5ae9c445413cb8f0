"""The query path behind every edge: check, route, relay, re-route, and exactly one answer.

Works by callbacks, without a task a query. An edge calls :meth:`DataPlane.submit` with a checked query and a function
that takes the outcome; it is called exactly once, from the event loop, unless the edge cancelled first. What it does
before it returns (rendering, handing to the socket) is part of the latency that is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

from workers import log
from workers.protocol import v2
from workers.protocol.frames import FrameError, Refusal, Result, Submit, split_body
from workers.protocol.specs import ApplicationSpec

from .bursts import BurstDetector
from .catalog import Catalog
from .errors import GatewayError, Invalid, ModelFailed, NotFound, Overloaded, TimedOut, Unavailable
from .executors import Executors
from .margin import ReturnMargin
from .metrics import GatewayMetrics
from .router import QueryRouter
from .stats import Statistics

logger = log.get("gateway.queries")

#: devices that one query is tried on at most
MAX_TRIES = 4
#: a query may be this much later than its deadline before the gateway gives up waiting, at least; its SLO if longer
GRACE_S = 0.25
#: applications that serve late answers wait this many SLOs
SERVE_SLOS = 10.0
#: an executor that owes answers and says nothing for so long is taken for stuck
SILENT_S = 2.0


@dataclass(frozen=True)
class Limits:
    """``queries``, ``rows`` and ``bytes`` under way at once in the whole gateway; ``query_rows`` in one query."""

    queries: int
    rows: int
    bytes: int
    query_rows: int


@dataclass(frozen=True)
class Answer:
    """A result: the executor's message and one part of the body for each of its outputs."""

    result: Result
    parts: list[memoryview]
    device: str


Outcome = Answer | GatewayError


class Flight:
    """A query under way."""

    __slots__ = (
        "allowed",
        "answer",
        "bytes",
        "deadline",
        "device",
        "error",
        "id",
        "query",
        "read_at",
        "sent_at",
        "spec",
        "timer",
        "tried",
        "variant",
    )

    def __init__(self, id: int, spec: ApplicationSpec, query: v2.Query, variant: str | None, read_at: float, answer):
        self.id = id
        self.spec = spec
        self.query = query
        self.variant = variant
        self.read_at = read_at
        budget = spec.slo_s if query.latency_s is None else min(spec.slo_s, query.latency_s)
        self.deadline = read_at + budget
        self.answer: Callable[[Outcome], None] | None = answer
        self.allowed: set[str] | None = None
        self.bytes = sum(header.nbytes for header in query.tensors)
        self.device: str | None = None
        self.sent_at = 0.0
        self.tried: set[str] = set()
        self.error: GatewayError | None = None
        self.timer: asyncio.TimerHandle | None = None


class DataPlane:
    """Queries under way, and everything that happens to them. Also the executors' :class:`~.executors.Listener` for
    results and refusals."""

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
        self.limits = limits
        self._router = router
        self._executors = executors
        self._statistics = statistics
        self._bursts = bursts
        self._metrics = metrics
        self._margins: dict[str, ReturnMargin] = {}
        self._by_device: dict[str, dict[int, Flight]] = {}
        self._ids = itertools.count(1)
        self.queries = 0
        self.rows = 0
        self.bytes = 0

    # --- edges --------------------------------------------------------------------------------------------------------

    def submit(
        self,
        spec: ApplicationSpec,
        query: v2.Query,
        variant: str | None,
        read_at: float,
        answer: Callable[[Outcome], None],
    ) -> Flight:
        """Take in a checked query; ``answer`` is called exactly once, perhaps before this returns.

        Args:
            variant: the only variant that will do, or None.
            read_at: ``time.monotonic()`` when the request was fully read; the budget runs from there.
        """
        now = time.monotonic()
        flight = Flight(next(self._ids), spec, query, variant, read_at, answer)
        self._statistics.arrived(spec.name, query.rows)
        self._bursts.arrived(spec.name, query.rows, now)
        self.queries += 1
        self.rows += query.rows
        self.bytes += flight.bytes
        try:
            self._check_limits()
            flight.allowed = self._allowed(spec, query, variant)
        except GatewayError as error:
            self._finish(flight, error)
            return flight
        loop = asyncio.get_running_loop()
        grace = SERVE_SLOS * spec.slo_s if spec.late == "serve" else max(GRACE_S, spec.slo_s)
        flight.timer = loop.call_later(max(0.0, flight.deadline + grace - now), self._timed_out, flight)
        self._dispatch(flight, now)
        return flight

    def cancel(self, flight: Flight) -> None:
        """The client went away: forget the query, unless it was answered."""
        if flight.answer is None:
            return
        now = time.monotonic()
        name = flight.spec.name
        if now > flight.deadline:
            # It was not answered in time, whoever gave up first.
            self._statistics.refused(name, "dropped")
            self._metrics.ended(name, "dropped")
        else:
            self._statistics.cancelled(name)
            self._metrics.ended(name, "cancelled")
        self._withdraw(flight, now)
        self._forget(flight)

    def give_up(self) -> None:
        """The gateway stops: whoever still waits is told so."""
        now = time.monotonic()
        for flights in list(self._by_device.values()):
            for flight in list(flights.values()):
                self._withdraw(flight, now)
                self._finish(flight, Unavailable("the gateway is stopping; try another or try again"))

    @property
    def outstanding(self) -> dict[str, int]:
        """Queries sent and not yet answered, by device."""
        return {device: len(flights) for device, flights in self._by_device.items()}

    # --- routing ------------------------------------------------------------------------------------------------------

    def _check_limits(self) -> None:
        limits = self.limits
        if self.queries > limits.queries:
            raise Overloaded(f"gateway: {limits.queries} queries are under way, the most at once; try again")
        if self.rows > limits.rows:
            raise Overloaded(f"gateway: {limits.rows} rows are under way, the most at once; try again")
        if self.bytes > limits.bytes:
            raise Overloaded(f"gateway: {limits.bytes} bytes of inputs are under way, the most at once; try again")

    def _allowed(self, spec: ApplicationSpec, query: v2.Query, variant: str | None) -> set[str] | None:
        """Devices that can do what the query insists on; None: any."""
        if variant is None and query.min_accuracy is None:
            return None
        warm = self._executors.warm(spec.name)
        if variant is not None:
            warm = [(device, known) for device, known in warm if known.name == variant]
            if not warm:
                raise Unavailable(f"version {variant!r}: no device has this variant of {spec.name} warm now")
        if query.min_accuracy is not None:
            best = max((known.accuracy for _, known in warm), default=None)
            warm = [(device, known) for device, known in warm if known.accuracy >= query.min_accuracy]
            if not warm:
                now = "nothing is warm now" if best is None else f"the best available now is {best:g}"
                raise Unavailable(f"parameters.min_accuracy: {query.min_accuracy:g} cannot be had; {now}")
        return {device for device, _ in warm}

    def _dispatch(self, flight: Flight, now: float) -> None:
        """Send the query to a device, or finish it."""
        spec, query = flight.spec, flight.query
        name = spec.name
        while True:
            left = flight.deadline - now
            if left <= 0 and spec.late != "serve":
                self._finish(flight, flight.error or _too_late(flight))
                return
            if len(flight.tried) >= MAX_TRIES:
                self._finish(flight, flight.error or self._nobody(flight))
                return
            started = time.perf_counter()
            device = self._router.pick(name, now, left, query.rows, flight.tried, flight.allowed)
            self._metrics.decision.observe(time.perf_counter() - started)
            if device is None:
                self._finish(flight, flight.error or self._nobody(flight))
                return
            if flight.tried:
                self._metrics.rerouted.inc()
            flight.tried.add(device)
            budget = max(-3600.0, left - self._margin(device).seconds)
            submit = Submit(
                flight.id,
                name,
                budget,
                query.rows,
                query.tensors,
                tuple(output for output, _ in query.outputs),
                flight.variant,
                query.min_accuracy,
            )
            if self._executors.send(device, submit, query.parts):
                flight.device, flight.sent_at = device, now
                self._by_device.setdefault(device, {})[flight.id] = flight
                self._router.sent(device, name, query.rows, now)
                return
            now = time.monotonic()

    def _margin(self, device: str) -> ReturnMargin:
        margin = self._margins.get(device)
        if margin is None:
            margin = self._margins[device] = ReturnMargin()
        return margin

    def _nobody(self, flight: Flight) -> GatewayError:
        name = flight.spec.name
        warm = self._executors.warm(name)
        if not warm:
            return Unavailable(f"model {name!r}: no device has a variant of it warm now; try again")
        return Unavailable(f"model {name!r}: none of the devices that could answer can be reached now; try again")

    # --- what executors say -------------------------------------------------------------------------------------------

    def result(self, device: str, result: Result, body: memoryview) -> None:
        """An answer arrived."""
        flight = self._landed(device, result.id)
        if flight is None:
            return
        now = time.monotonic()
        self._router.done(
            device,
            flight.spec.name,
            flight.query.rows,
            now,
            True,
            result.queue_s,
            result.run_s,
            result.batch_rows,
        )
        sent_at = flight.sent_at
        try:
            parts = split_body(result.outputs, body)
        except FrameError as error:
            self._finish(flight, ModelFailed(f"device {device}: broken answer: {error}"))
            return
        self._finish(flight, Answer(result, parts, device))
        self._margin(device).add(time.monotonic() - sent_at - result.queue_s - result.run_s)

    def refusal(self, device: str, refusal: Refusal) -> None:
        """A query was declined; another device may do better."""
        flight = self._landed(device, refusal.id)
        if flight is None:
            return
        now = time.monotonic()
        self._router.done(device, flight.spec.name, flight.query.rows, now, False)
        flight.error = _from_refusal(device, refusal)
        if refusal.retryable:
            self._dispatch(flight, now)
        else:
            self._finish(flight, flight.error)

    def lost(self, device: str, reason: str) -> None:
        """A device's connection ended; the router already knows that it is down."""
        flights = self._by_device.pop(device, {})
        self._margins.pop(device, None)
        now = time.monotonic()
        for flight in flights.values():
            self._router.done(device, flight.spec.name, flight.query.rows, now, False)
            flight.device = None
        for flight in flights.values():
            flight.error = Unavailable(f"device {device}: went away with the query under way ({reason}); try again")
            self._dispatch(flight, now)
        if flights:
            logger.warning("queries_rerouted", device=device, queries=len(flights))

    def _landed(self, device: str, id: int) -> Flight | None:
        flight = self._by_device.get(device, {}).pop(id, None)
        if flight is not None:
            flight.device = None
        return flight

    # --- endings ------------------------------------------------------------------------------------------------------

    def _timed_out(self, flight: Flight) -> None:
        if flight.answer is None:
            return
        now = time.monotonic()
        device = flight.device
        self._withdraw(flight, now)
        waited = (now - flight.read_at) * 1e3
        self._finish(flight, TimedOut(f"device {device}: no answer within {waited:.0f} ms", retry_after_s=1.0))
        executor = self._executors.get(device) if device is not None else None
        # One query's time-out may be shorter than that: what counts is since when the device owes any sign of life.
        owed_since = executor.owed_since if executor is not None else None
        if owed_since is not None and now - owed_since > SILENT_S:
            executor.drop(f"silent for {now - owed_since:.1f} s with queries under way")

    def _withdraw(self, flight: Flight, now: float) -> None:
        device = flight.device
        if device is not None and self._landed(device, flight.id) is not None:
            self._router.done(device, flight.spec.name, flight.query.rows, now, False)
            self._executors.cancel(device, flight.id)

    def _forget(self, flight: Flight) -> Callable[[Outcome], None]:
        answer, flight.answer = flight.answer, None
        if flight.timer is not None:
            flight.timer.cancel()
        self.queries -= 1
        self.rows -= flight.query.rows
        self.bytes -= flight.bytes
        return answer

    def _finish(self, flight: Flight, outcome: Outcome) -> None:
        if flight.answer is None:
            return
        answer = self._forget(flight)
        try:
            answer(outcome)
        except GatewayError as error:
            # The edge could not render the result and has told the client so.
            outcome = error
        except Exception as error:
            logger.exception("answer_failed", application=flight.spec.name)
            outcome = ModelFailed(f"internal error: {type(error).__name__}")
        self._count(flight, outcome)

    def _count(self, flight: Flight, outcome: Outcome) -> None:
        name, now = flight.spec.name, time.monotonic()
        if isinstance(outcome, Answer):
            latency, in_time = now - flight.read_at, now <= flight.deadline
            self._statistics.answered(name, flight.query.rows, latency, in_time, outcome.result, time.time())
            self._metrics.ended(name, "in_time" if in_time else "late")
            self._metrics.latency(name, latency)
        else:
            # A checked query that an executor calls invalid is a failure of the appliance, not of the client.
            ended = outcome.outcome or "failed"
            self._statistics.refused(name, ended)
            self._metrics.ended(name, ended)


def _too_late(flight: Flight) -> GatewayError:
    budget = (flight.deadline - flight.read_at) * 1e3
    return Overloaded(f"model {flight.spec.name!r}: cannot be answered within {budget:.0f} ms; try again")


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
