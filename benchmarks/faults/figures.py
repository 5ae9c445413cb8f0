"""The cost of a fault, from a history.

It consists of refused, late and lost queries, and the time until all are answered again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .checker import Query

#: seconds; a slot is lost if more than half of the queries sent in it got no answer
SLOT_S = 0.1
#: seconds of queries without a lost slot, after which an application is served again
STEADY_S = 1.0


@dataclass(frozen=True)
class Cost:
    """Figures of one application from a moment on.

    Attributes:
        sent, refused, unknown: queries; ``late``: answered after the SLO.
        lost_s: seconds in which more than half of the queries got no answer.
        back_s: seconds until no slot is lost any more; None: not in this history.
        accuracy: mean of answers, percent.
    """

    sent: int
    refused: int
    unknown: int
    late: int
    lost_s: float
    back_s: float | None
    accuracy: float


def costs(queries: Sequence[Query], slo_s: float, start: float, end: float) -> dict[str, Cost]:
    """By application, of queries sent from ``start`` to ``end``."""
    by_application: dict[str, list[Query]] = defaultdict(list)
    for query in queries:
        # One that was under way counts, too.
        if query.end.at >= start and query.sent.at <= end:
            by_application[query.sent.application].append(query)
    return {name: _cost(of, slo_s, start) for name, of in sorted(by_application.items())}


def _cost(queries: Sequence[Query], slo_s: float, start: float) -> Cost:
    answers = [query for query in queries if query.end.end == "ok"]
    return Cost(
        sent=len(queries),
        refused=sum(query.end.end == "fail" for query in queries),
        unknown=sum(query.end.end == "unknown" for query in queries),
        late=sum(query.took_s > slo_s for query in answers),
        lost_s=SLOT_S * len(lost_slots(queries)),
        back_s=back_s(queries, start),
        accuracy=sum(query.end.accuracy for query in answers) / len(answers) if answers else float("nan"),
    )


def lost_slots(queries: Sequence[Query]) -> list[float]:
    """Return the ends of slots in which most queries got no answer, in order.

    Most are more than half.
    """
    slots: dict[int, list[bool]] = defaultdict(list)
    for query in queries:
        slots[int(query.sent.at / SLOT_S)].append(query.end.end == "ok")
    return [SLOT_S * (slot + 1) for slot, answered in sorted(slots.items()) if 2 * sum(answered) < len(answered)]


def back_s(queries: Sequence[Query], start: float) -> float | None:
    """Return the seconds from ``start`` to the end of the last lost slot.

    None: nothing shows that it is over.
    """
    lost = lost_slots(queries)
    if not lost:
        return 0.0 if queries else None
    last = max(query.sent.at for query in queries)
    return max(0.0, lost[-1] - start) if last >= lost[-1] + STEADY_S else None
