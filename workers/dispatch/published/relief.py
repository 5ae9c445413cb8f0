"""Which warm variants may relieve the planned ones, and which planned one is next: live and simulated. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ..latency import LatencyModel


def relief_rows(planned: Iterable[tuple[LatencyModel, int]], other: LatencyModel) -> int:
    """The rows that one turn of a variant with latency ``other`` may take to relieve the ``planned`` ones, given as
    (latency, most rows a turn); 0: it cannot.

    Its turns may be no longer than theirs, for others on the device wait no longer than the plan says, and it must
    have a higher throughput than each of them.
    """
    planned = list(planned)
    longest_s = max(latency.ceiling(rows) for latency, rows in planned)
    rate = max(rows / latency.seconds(rows) for latency, rows in planned)
    rows = other.largest
    while rows > 0 and other.ceiling(rows) > longest_s:
        rows -= 1
    return rows if rows and rows / other.seconds(rows) > rate else 0


def behind(served: float, rate: float) -> float:
    """How far a planned variant is with its part: the one with the least comes next, so that several variants of one
    application share its queries as the plan says, whatever their batch sizes. ``served``: rows; ``rate``: planned
    rows/s."""
    return served / max(rate, 1e-9)
