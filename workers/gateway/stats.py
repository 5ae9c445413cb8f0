"""What happened to queries: a second at a time for the control plane, and since the start for clients. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from workers.protocol.specs import ApplicationStats

from .in_flight import Run


@dataclass
class _Second:
    arrived: int = 0
    arrived_rows: int = 0
    in_time: int = 0
    late: int = 0
    dropped: int = 0
    failed: int = 0
    accuracy_sum: float = 0.0
    normalized_sum: float = 0.0
    latencies: list[float] = field(default_factory=list)
    by_variant: dict[str, int] = field(default_factory=dict)
    by_size: dict[int, int] = field(default_factory=dict)


@dataclass
class Totals:
    """Since the gateway started, of one application; times in seconds. ``cancelled``: the client went away first."""

    success: int = 0
    success_s: float = 0.0
    queue_s: float = 0.0
    run_s: float = 0.0
    rows: int = 0
    batches: float = 0.0
    refused: int = 0
    cancelled: int = 0
    last_success_unix: float = 0.0


class Statistics:
    """Counts by application. Arrivals count in the second in which they arrive, all else in that of the answer."""

    def __init__(self) -> None:
        self._second: dict[str, _Second] = {}
        self.totals: dict[str, Totals] = {}

    def _of(self, application: str) -> _Second:
        second = self._second[application] = _Second()
        return second

    def total(self, application: str) -> Totals:
        """An application's totals."""
        total = self.totals.get(application)
        if total is None:
            total = self.totals[application] = Totals()
        return total

    def arrived(self, application: str, rows: int, size: int | None = None) -> None:
        """A query that fits its application's signature arrived. ``size``: its class, where there are several."""
        second = self._second.get(application) or self._of(application)
        if size is not None:
            second.by_size[size] = second.by_size.get(size, 0) + rows
        second.arrived += 1
        second.arrived_rows += rows

    def answered(
        self,
        application: str,
        run: Run,
        latencies_s: Sequence[float],
        late: int,
        queue_s: float,
        rows: int,
        unix_s: float,
    ) -> None:
        """Results of one run were handed to the socket, each so long after its request was read; ``late`` of them were
        late. ``queue_s``: summed over them; ``rows``: theirs."""
        second = self._second.get(application) or self._of(application)
        count = len(latencies_s)
        second.in_time += count - late
        second.late += late
        second.accuracy_sum += run.accuracy * (count - late)
        second.normalized_sum += run.accuracy_normalized * (count - late)
        second.latencies += latencies_s
        second.by_variant[run.variant] = second.by_variant.get(run.variant, 0) + count
        total = self.totals.get(application) or self.total(application)
        total.success += count
        total.success_s += sum(latencies_s)
        total.queue_s += queue_s
        total.run_s += run.run_s * count
        total.rows += rows
        # Queries that shared a batch each count their part of it, so that batches add up.
        total.batches += rows / max(rows, run.rows)
        total.last_success_unix = unix_s

    def refused(self, application: str, outcome: str) -> None:
        """A query got an error: ``dropped`` or ``failed``."""
        second = self._second.get(application) or self._of(application)
        if outcome == "dropped":
            second.dropped += 1
        else:
            second.failed += 1
        self.total(application).refused += 1

    def cancelled(self, application: str) -> None:
        """The client went away before the answer."""
        self.total(application).cancelled += 1

    def take(self, applications: list[str]) -> dict[str, ApplicationStats]:
        """The second that ends now, and begin the next; idle ``applications`` are there too, with zeros."""
        taken, self._second = self._second, {}
        return {name: _render(taken.get(name) or _Second()) for name in {*applications, *taken}}


def _render(second: _Second) -> ApplicationStats:
    ordered = sorted(second.latencies)
    return ApplicationStats(
        arrived=second.arrived,
        arrived_rows=second.arrived_rows,
        in_time=second.in_time,
        late=second.late,
        dropped=second.dropped,
        failed=second.failed,
        accuracy_sum=second.accuracy_sum,
        normalized_sum=second.normalized_sum,
        p50_ms=_quantile(ordered, 0.50) * 1e3,
        p95_ms=_quantile(ordered, 0.95) * 1e3,
        by_variant=second.by_variant,
        arrived_by_size=second.by_size,
    )


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[int(q * (len(ordered) - 1) + 0.5)] if ordered else 0.0
