"""Statistics of several fronts, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from workers.protocol.gateways import ApplicationTotals, FrontTotals
from workers.protocol.specs import ApplicationStats


def added(parts: Sequence[FrontTotals]) -> FrontTotals:
    """The sum of totals; each application's last success is the latest."""
    names = {name for part in parts for name in part.applications}
    applications = {
        name: total([part.applications[name] for part in parts if name in part.applications]) for name in names
    }
    return FrontTotals(applications, dict(sum((Counter(part.keys) for part in parts), Counter())))


def total(parts: Sequence[ApplicationTotals]) -> ApplicationTotals:
    sums = {name: sum(getattr(part, name) for part in parts) for name in ApplicationTotals.__struct_fields__}
    return ApplicationTotals(**{**sums, "last_success_unix": max(part.last_success_unix for part in parts)})


def merged(parts: Iterable[dict[str, ApplicationStats]]) -> dict[str, ApplicationStats]:
    """Merge a second's statistics; latencies are means weighted by answers."""
    sums: dict[str, ApplicationStats] = {}
    for part in parts:
        for name, stats in part.items():
            sums[name] = _add(sums[name], stats) if name in sums else stats
    return sums


def _add(one: ApplicationStats, other: ApplicationStats) -> ApplicationStats:
    more, answered = other.in_time + other.late, one.in_time + one.late
    weight = more / (answered + more) if answered + more else 0.0
    total = ApplicationStats(
        p50_ms=one.p50_ms + weight * (other.p50_ms - one.p50_ms),
        p95_ms=one.p95_ms + weight * (other.p95_ms - one.p95_ms),
        least_accuracy=max(one.least_accuracy, other.least_accuracy),
        slowest=max((one.slowest, other.slowest), key=lambda sample: sample.latency_ms if sample is not None else -1.0),
        refused=one.refused or other.refused,
    )
    for name in ApplicationStats.__struct_fields__:
        first, second = getattr(one, name), getattr(other, name)
        if isinstance(first, dict):
            setattr(total, name, {key: first.get(key, 0) + second.get(key, 0) for key in first.keys() | second.keys()})
        elif name not in ("p50_ms", "p95_ms", "least_accuracy", "slowest", "refused"):
            setattr(total, name, first + second)
    return total
