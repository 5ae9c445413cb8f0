"""What is under way in the gateway, within its limits, and how queries ended: counted for whoever asks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import GatewayError, Overloaded
from .in_flight import InFlightQuery, Run
from .metrics import GatewayMetrics
from .stats import Statistics


@dataclass(frozen=True)
class Limits:
    """``queries``, ``rows`` and ``bytes`` under way at once in the whole gateway; ``query_rows`` in one query."""

    queries: int
    rows: int
    bytes: int
    query_rows: int


class Accounts:
    """``queries``, ``rows`` and ``bytes`` of inputs under way. Each flight that enters leaves once, and its end is
    counted once."""

    def __init__(self, statistics: Statistics, metrics: GatewayMetrics, limits: Limits):
        self.limits = limits
        self.queries = 0
        self.rows = 0
        self.bytes = 0
        self._statistics = statistics
        self._metrics = metrics

    def enter(self, flight: InFlightQuery) -> Overloaded | None:
        """A checked query arrived; what it is too much for, if it is."""
        rows, limits = flight.rows, self.limits
        spec = flight.spec
        self._statistics.arrived(spec.name, rows, flight.query_class.size if len(spec.sizes) > 1 else None)
        self.queries += 1
        self.rows += rows
        self.bytes += flight.query.terms.nbytes
        if self.queries <= limits.queries and self.rows <= limits.rows and self.bytes <= limits.bytes:
            return None
        if self.queries > limits.queries:
            return Overloaded(f"gateway: {limits.queries} queries are under way, the most at once; try again")
        if self.rows > limits.rows:
            return Overloaded(f"gateway: {limits.rows} rows are under way, the most at once; try again")
        return Overloaded(f"gateway: {limits.bytes} bytes of inputs are under way, the most at once; try again")

    def leave(self, queries: int, rows: int, nbytes: int) -> None:
        """Flights are under way no more."""
        self.queries -= queries
        self.rows -= rows
        self.bytes -= nbytes

    # --- endings ------------------------------------------------------------------------------------------------------

    def answered(
        self, application: str, run: Run, latencies_s: Sequence[float], late: int, queue_s: float, rows: int
    ) -> None:
        """See :meth:`.stats.Statistics.answered`."""
        self._statistics.answered(application, run, latencies_s, late, queue_s, rows, time.time())
        metrics = self._metrics
        if late:
            metrics.ended(application, "late", late)
        if late < len(latencies_s):
            metrics.ended(application, "in_time", len(latencies_s) - late)
        metrics.latencies(application, latencies_s)

    def failed(self, flight: InFlightQuery, error: GatewayError) -> None:
        """A flight ended in an error. A checked query that an executor calls invalid is a failure of the appliance, not
        of the client."""
        name, ended = flight.spec.name, error.outcome or "failed"
        self._statistics.refused(name, ended)
        self._metrics.ended(name, ended)

    def cancelled(self, flight: InFlightQuery, now: float) -> None:
        """The client went away first."""
        name = flight.spec.name
        if now > flight.due:
            # It was not answered in time, whoever gave up first.
            self._statistics.refused(name, "dropped")
            self._metrics.ended(name, "dropped")
        else:
            self._statistics.cancelled(name)
            self._metrics.ended(name, "cancelled")
