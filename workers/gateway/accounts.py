"""Accounts of one front's queries: those in flight, and how the others ended.

Those in flight are kept within limits. Counts are by application.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from workers.protocol.gateways import ApplicationTotals
from workers.protocol.specs import ApplicationStats, QuerySample

from .errors import GatewayError, Overloaded
from .in_flight import InFlightQuery, Run
from .metrics import GatewayMetrics

#: characters of an error that are kept of a refused query
MOST_REASON = 300
#: different variants that queries of a second may name
MOST_NAMED = 16
#: characters that are kept of each name
MOST_NAME = 200


@dataclass(frozen=True)
class Limits:
    """Limits on what a front has in flight at once.

    At a limit, a client (an API key) that has more than an equal part of it is refused.

    Attributes:
        queries, rows, bytes: in flight in the whole front.
        query_rows: of one query.
    """

    queries: int
    rows: int
    bytes: int
    query_rows: int


class _InFlight(msgspec.Struct):
    queries: int = 0
    rows: int = 0
    bytes: int = 0


class Accounts:
    """Each query that enters leaves once, and its end is counted once.

    Attributes:
        queries, rows, bytes: in flight.
        totals: by application, since the start.
    """

    def __init__(self, metrics: GatewayMetrics, limits: Limits):
        self.limits = limits
        self.queries = self.rows = self.bytes = 0
        self.totals: defaultdict[str, ApplicationTotals] = defaultdict(ApplicationTotals)
        #: by client, of those that have anything in flight
        self._clients: defaultdict[str, _InFlight] = defaultdict(_InFlight)
        #: of the present second, by application; latencies in seconds
        self._seconds: defaultdict[str, ApplicationStats] = defaultdict(ApplicationStats)
        self._latencies: defaultdict[str, list[float]] = defaultdict(list)
        self._metrics = metrics
        metrics.totals = self.totals

    def enter(self, flight: InFlightQuery) -> Overloaded | None:
        """A valid query arrived; the error if it exceeds a limit."""
        rows, limits, spec = flight.rows, self.limits, flight.spec
        second = self._seconds[spec.name]
        second.arrived += 1
        second.arrived_rows += rows
        if len(spec.sizes) > 1:
            size = flight.query_class.size
            second.arrived_by_size[size] = second.arrived_by_size.get(size, 0) + rows
        if flight.variant is not None:
            self.named(spec.name, flight.variant)
        least = flight.query.terms.min_accuracy
        if least is not None and least > second.least_accuracy:
            second.least_accuracy = least
        nbytes = flight.query.terms.nbytes
        in_flight = self._clients[flight.client]
        self.queries += 1
        self.rows += rows
        self.bytes += nbytes
        in_flight.queries += 1
        in_flight.rows += rows
        in_flight.bytes += nbytes
        if self.queries <= limits.queries and self.rows <= limits.rows and self.bytes <= limits.bytes:
            return None
        return self._beyond_part(in_flight)

    def named(self, application: str, variant: str) -> None:
        named, name = self._seconds[application].named, variant[:MOST_NAME]
        if name in named or len(named) < MOST_NAMED:
            named[name] = named.get(name, 0) + 1

    def _beyond_part(self, in_flight: _InFlight) -> Overloaded | None:
        limits, clients = self.limits, len(self._clients)
        for most, total, part, things in (
            (limits.queries, self.queries, in_flight.queries, "queries"),
            (limits.rows, self.rows, in_flight.rows, "rows"),
            (limits.bytes, self.bytes, in_flight.bytes, "bytes of inputs"),
        ):
            if total > most and part * clients > most:
                of_key = "" if clients == 1 else f", {part} of them of this API key"
                return Overloaded(f"gateway: {most} {things} are in flight, the most at once{of_key}; try again")
        return None

    def leave(self, flight: InFlightQuery) -> None:
        rows, nbytes = flight.rows, flight.query.terms.nbytes
        self.queries -= 1
        self.rows -= rows
        self.bytes -= nbytes
        in_flight = self._clients[flight.client]
        in_flight.queries -= 1
        in_flight.rows -= rows
        in_flight.bytes -= nbytes
        if not in_flight.queries:
            del self._clients[flight.client]

    # --- endings ------------------------------------------------------------------------------------------------------

    def answered(
        self,
        application: str,
        run: Run,
        latencies_s: Sequence[float],
        late: int,
        queue_s: float,
        rows: int,
        slowest: tuple[InFlightQuery, float],
    ) -> None:
        """Results of one run were handed to the socket.

        Args:
            latencies_s: from reading each request to its response.
            late: how many were late.
            queue_s, rows: sums over these queries.
            slowest: of them, with its seconds in the core and at the device.
        """
        second, total = self._seconds[application], self.totals[application]
        count = len(latencies_s)
        in_time = count - late
        for counts in (second, total):
            counts.in_time += in_time
            counts.late += late
            counts.accuracy_sum += run.accuracy * in_time
            counts.normalized_sum += run.accuracy_normalized * in_time
        self._latencies[application] += latencies_s
        second.by_variant[run.variant] = second.by_variant.get(run.variant, 0) + count
        total.success_s += sum(latencies_s)
        total.queue_s += queue_s
        total.run_s += run.run_s * count
        total.rows += rows
        # Queries of one batch each count their part of it, so that batches add up.
        total.batches += rows / max(rows, run.rows)
        total.last_success_unix = time.time()
        self._metrics.latency.observe_all((application,), latencies_s)
        latency_s = max(latencies_s)
        latency_ms = latency_s * 1e3
        if second.slowest is not None and second.slowest.latency_ms >= latency_ms:
            return
        flight, queue_s = slowest
        budget_s = flight.due - flight.arrived
        second.slowest = QuerySample(
            "in_time" if latency_s <= budget_s else "late",
            latency_ms,
            budget_s * 1e3,
            flight.rows,
            run.variant,
            run.device,
            run.rows,
            max(0.0, queue_s) * 1e3,
            *run.stages_ms(),
            tries=flight.tries,
        )

    def failed(self, flight: InFlightQuery, error: GatewayError) -> None:
        """Count a query's error, the appliance's even where an executor says invalid."""
        dropped = error.outcome == "dropped"
        self._refused(flight.spec.name, dropped)
        second = self._seconds[flight.spec.name]
        if second.refused is None:
            now = time.monotonic()
            second.refused = QuerySample(
                "dropped" if dropped else "failed",
                max(0.0, now - flight.arrived) * 1e3,
                max(0.0, flight.due - flight.arrived) * 1e3,
                flight.rows,
                device=flight.device or "",
                tries=flight.tries,
                reason=str(error)[:MOST_REASON],
            )

    def cancelled(self, flight: InFlightQuery, now: float) -> None:
        if now > flight.due:
            # It was not answered in time, whichever side gave up first.
            self._refused(flight.spec.name, True)
        else:
            self.totals[flight.spec.name].cancelled += 1

    def _refused(self, application: str, dropped: bool) -> None:
        for counts in (self._seconds[application], self.totals[application]):
            if dropped:
                counts.dropped += 1
            else:
                counts.failed += 1

    def forget(self, applications: Collection[str]) -> None:
        for name in applications:
            self.totals.pop(name, None)
        self._metrics.latency.forget(applications)

    def take_second(self, applications: Collection[str]) -> dict[str, ApplicationStats]:
        """End the present second; its statistics of all ``applications``, and of others that had queries."""
        for name, latencies_s in self._latencies.items():
            second, ordered = self._seconds[name], sorted(latencies_s)
            second.p50_ms, second.p95_ms = _quantile(ordered, 0.50) * 1e3, _quantile(ordered, 0.95) * 1e3
        taken = {**{name: ApplicationStats() for name in applications}, **self._seconds}
        self._seconds.clear()
        self._latencies.clear()
        return taken


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[int(q * (len(ordered) - 1) + 0.5)] if ordered else 0.0
