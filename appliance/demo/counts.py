"""Outcomes of the demo's queries, counted at the client."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields


@dataclass
class QueryCounts:
    """Queries by outcome, and sums over answers.

    Attributes:
        late: answered after the SLO.
        refused: as overload.
        failed: any other error, or no answer.
        unsent: due, but too many were in flight.
        abandoned: in flight when the load was stopped; their ends are unknown, so no ratio contains them.
        accuracy_sum, correct: over answers in time.
    """

    sent: int = 0
    in_time: int = 0
    late: int = 0
    refused: int = 0
    failed: int = 0
    unsent: int = 0
    abandoned: int = 0
    accuracy_sum: float = 0.0
    correct: int = 0
    variants: dict[str, int] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)
    lags_ms: list[float] = field(default_factory=list)

    def add(self, other: QueryCounts) -> None:
        """Add another period's or application's counts to these."""
        for name in (f.name for f in fields(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                for key, value in theirs.items():
                    mine[key] = mine.get(key, 0) + value
            elif isinstance(mine, list):
                mine.extend(theirs)
            else:
                setattr(self, name, mine + theirs)

    @property
    def decided(self) -> int:
        """Queries that were due and whose end is known."""
        return self.in_time + self.violations

    @property
    def violations(self) -> int:
        return self.late + self.refused + self.failed + self.unsent

    def summary(self) -> dict[str, object]:
        """Return plain values for a log line or a report.

        Ratios and means are None where there is nothing to divide by. ``violation_ratio``: 0 to 1.
        ``effective_accuracy``: percent, mean of the variants' accuracies over answers in time. ``observed_accuracy``:
        percent of those answers that were right. ``lag_ms``: the load's own delay between a query's due time and its
        sending; latencies are counted from the due time, so they contain it.
        """

        def ratio(part: float, whole: int, digits: int = 2) -> float | None:
            return round(part / whole, digits) if whole else None

        return {
            "sent": self.sent,
            "in_time": self.in_time,
            "late": self.late,
            "refused": self.refused,
            "failed": self.failed,
            "unsent": self.unsent,
            "abandoned": self.abandoned,
            "violation_ratio": ratio(self.violations, self.decided, 5),
            "effective_accuracy": ratio(self.accuracy_sum, self.in_time),
            "observed_accuracy": ratio(100 * self.correct, self.in_time),
            "latency_p50_ms": percentile(self.latencies_ms, 50),
            "latency_p99_ms": percentile(self.latencies_ms, 99),
            "lag_p99_ms": percentile(self.lags_ms, 99),
            "variants": dict(sorted(self.variants.items())),
        }


def percentile(values: list[float], percent: float) -> float | None:
    """Nearest rank, to a tenth; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)], 1)
