"""Queries of a load, one row each, and figures over many of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

#: ``status`` of a query that has none of its protocol's
BROKEN, LOST, WRONG, UNSENT, ABANDONED = -1, -2, -3, -4, -5
_OWN = {
    BROKEN: "connection failed",
    LOST: "no answer",
    WRONG: "wrong answer",
    UNSENT: "too many in flight",
    ABANDONED: "the load was stopped",
}

#: Times in seconds since the load began; ``ended`` is NaN of a query without an end. ``status``: of HTTP or gRPC, or
#: one of the above. ``retry``: the refusal says when to retry. ``variant`` and ``request``: places among the load's.
#: ``accuracy``: as the answer says, percent.
ROW = np.dtype(
    [
        ("due", "f8"),
        ("sent", "f8"),
        ("ended", "f8"),
        ("status", "i2"),
        ("retry", "?"),
        ("variant", "i1"),
        ("queue_ms", "f4"),
        ("batch", "i2"),
        ("request", "i4"),
        ("accuracy", "f4"),
    ]
)


@dataclass(frozen=True)
class Protocol:
    """One protocol's statuses of an answer and a refusal. ``names``: of statuses."""

    answered: int
    refused: int
    names: dict[int, str]

    def name(self, status: int) -> str:
        return _OWN.get(status) or self.names.get(status) or str(status)


HTTP = Protocol(200, 503, {503: "503", 504: "504"})
#: https://grpc.io/docs/guides/status-codes
GRPC = Protocol(0, 8, {4: "DEADLINE_EXCEEDED", 8: "RESOURCE_EXHAUSTED", 13: "INTERNAL", 14: "UNAVAILABLE"})


class Records:
    """Rows of :data:`ROW` as queries were due; the SLO runs from then."""

    def __init__(self, rows: np.ndarray, protocol: Protocol, slo_s: float):
        self.rows = rows
        self.protocol = protocol
        self.slo_s = slo_s

    def between(self, start_s: float, end_s: float) -> Records:
        due = self.rows["due"]
        return Records(self.rows[(due >= start_s) & (due < end_s)], self.protocol, self.slo_s)

    def __len__(self) -> int:
        return len(self.rows)

    # --- how they ended ---

    @property
    def took_s(self) -> np.ndarray:
        """Seconds from when each was due to its end; NaN where it has none."""
        return self.rows["ended"] - self.rows["due"]

    @property
    def answered(self) -> np.ndarray:
        """The queries with a right answer, in time or late."""
        return self.rows["status"] == self.protocol.answered

    @property
    def refused(self) -> np.ndarray:
        return self.rows["status"] == self.protocol.refused

    @property
    def in_time(self) -> np.ndarray:
        """The queries with a right answer within the SLO."""
        return self.answered & (self.took_s <= self.slo_s)

    @property
    def late(self) -> int:
        return int(np.count_nonzero(self.answered & ~self.in_time))

    @property
    def untold(self) -> int:
        """Queries that the server left without an end, or answered wrongly."""
        return int(np.count_nonzero(self.rows["status"] < 0))

    def ends(self) -> dict[str, int]:
        counts = Counter(self.rows["status"][~self.answered].tolist())
        return {self.protocol.name(status): count for status, count in sorted(counts.items())}

    def without_retry(self) -> int:
        """Refusals that do not say when to try again."""
        return int(np.count_nonzero(self.refused & ~self.rows["retry"]))

    def variants(self, names: list[str]) -> dict[str, int]:
        places = self.rows["variant"][self.answered]
        return {name: int(np.count_nonzero(places == place)) for place, name in enumerate(names)}

    # --- quantiles ---

    def latency_ms(self, q: float) -> float:
        """A percentile over answers from when due; infinite where any has no end."""
        if self.untold:
            return float("inf")
        return quantile(self.took_s[self.answered] * 1e3, q)

    def refusal_ms(self, q: float) -> float:
        """A percentile over refusals, from when the query was sent."""
        rows = self.rows[self.refused]
        return quantile((rows["ended"] - rows["sent"]) * 1e3, q)

    def queue_ms(self, q: float) -> float:
        return quantile(self.rows["queue_ms"][self.answered], q)

    def lateness_ms(self, q: float) -> float:
        """Delay with which queries were sent: the generator's own fault."""
        return quantile((self.rows["sent"] - self.rows["due"]) * 1e3, q)


def quantile(values: np.ndarray, q: float) -> float:
    """NaN of nothing."""
    return float(np.quantile(values, q)) if len(values) else float("nan")
