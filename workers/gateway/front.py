"""A front: accepts checked queries, and gives each exactly one answer.

It owns a query from the request fully read to the response handed to the socket, which is the latency that counts. The
core decides about the query, in this process or in another one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from workers import log
from workers.protocol.results import Answer as PackedAnswer
from workers.protocol.specs import ApplicationSpec
from workers.v2.query import V2Query

from .accounts import Accounts
from .catalog import Catalog
from .errors import GatewayError, ModelFailed, NoSuchVariant, Overloaded, TimedOut, Unavailable
from .in_flight import Answer, Answering, InFlightQuery, Run
from .key_limits import KeyTable

logger = log.get("gateway.front")


class Front:
    """Queries in flight at this process's edges.

    Attributes:
        catalog: what clients may ask for; replaced whole.
        keys: API keys with limits.
        core: decides about the queries that come from now on (:class:`.core.Core` or :class:`.core_link.CoreLink`). It
            calls :meth:`deliver` or :meth:`finish` once for each that is submitted and not withdrawn.
    """

    def __init__(self, accounts: Accounts) -> None:
        self.catalog = Catalog()
        self.accounts = accounts
        self.keys = KeyTable()
        self.core: Any
        self._ids = itertools.count(1)

    def resolve(self, model: str, version: str | None, client: str) -> tuple[ApplicationSpec, str | None]:
        try:
            return self.catalog.resolve(model, version)
        except NoSuchVariant:
            key = self.keys.by_hash.get(client)
            if key is not None:
                key.admit(model)
            self.accounts.named(model, version or "")
            raise

    def submit(
        self,
        spec: ApplicationSpec,
        query: V2Query,
        variant: str | None,
        read_at: float,
        answer: Answering,
        context: Any = None,
        client: str = "",
    ) -> InFlightQuery:
        """Accept a checked query.

        ``answer`` is called exactly once, with the flight and its outcome, perhaps before this returns.

        Args:
            variant: the only variant that may answer, or None.
            read_at: ``time.monotonic()`` when the request was fully read; the budget runs from there.
            context: the edge's own, kept in the flight.
            client: hash of the API key that it came with.

        Raises:
            GatewayError: the key may not send it, or not now.
        """
        key = self.keys.by_hash.get(client)
        if key is not None:
            key.admit(spec.name)
        flight = InFlightQuery(next(self._ids), spec, query, variant, read_at, answer, context)
        flight.client = client
        flight.front = self
        error = self.accounts.enter(flight)
        if key is not None:
            error = key.beyond_share(spec.name, flight.rows) or error
        if error is None:
            core = flight.core = self.core
            core.submit(flight)
        else:
            self.finish(flight, error)
        return flight

    def withdraw(self, flight: InFlightQuery) -> None:
        if flight.answer is None:
            return
        now = time.monotonic()
        self.accounts.cancelled(flight, now)
        flight.core.withdraw(flight, now)
        self._forget(flight)

    def give_up(self, flights: Sequence[InFlightQuery], why: str) -> None:
        now = time.monotonic()
        for flight in flights:
            flight.core.withdraw(flight, now)
            self.finish(flight, Unavailable(why))

    def deliver(
        self, flights: Sequence[InFlightQuery | None], run: Run, queue_s: float, answers: Sequence[PackedAnswer]
    ) -> None:
        """Give queries of one application their answers; None: withdrawn.

        Args:
            queue_s: seconds from receipt at the device to the run's start.
        """
        latencies: list[float] = []
        late, waited, rows, name = 0, 0.0, 0, ""
        longest, slowest = -1.0, None
        for flight, (headers, parts) in zip(flights, answers, strict=True):
            if flight is None:
                continue
            answer, flight.answer, flight.reservation = flight.answer, None, None
            assert answer is not None
            self.accounts.leave(flight)
            # Since its arrival here.
            queue = queue_s + flight.sent_at - flight.arrived
            try:
                error = answer(flight, Answer(run, round(queue * 1e3, 3), headers, parts))
            except Exception as failure:
                logger.exception("answer_failed", application=flight.spec.name)
                error = ModelFailed(f"internal error: {type(failure).__name__}")
            if error is not None and error.outcome != "answered":
                self.accounts.failed(flight, error)
                continue
            done = time.monotonic()
            latency = done - flight.arrived
            latencies.append(latency)
            if latency > longest:
                longest, slowest = latency, (flight, queue)
            late += done > flight.due
            waited += queue
            rows += flight.rows
            name = flight.spec.name
        if slowest is not None:
            self.accounts.answered(name, run, latencies, late, waited, rows, slowest)

    def finish(self, flight: InFlightQuery, error: GatewayError) -> None:
        if flight.answer is None:
            return
        answer = self._forget(flight)
        if isinstance(error, Overloaded | TimedOut):
            self.keys.refused(flight.spec.name)
        try:
            answer(flight, error)
        except Exception:
            logger.exception("answer_failed", application=flight.spec.name)
        self.accounts.failed(flight, error)

    def _forget(self, flight: InFlightQuery) -> Answering:
        # A batch refers to its queries: break the cycle, so that the garbage collector is not needed.
        answer, flight.answer, flight.reservation = flight.answer, None, None
        assert answer is not None
        self.accounts.leave(flight)
        return answer
