"""Profiles for plans where latency depends on the size of queries. Pure.

Proteus (Ahmad et al., ASPLOS '24, Section 4) has one latency by batch: a batch b may run where latency(b) <= SLO / 2,
and a device then serves P = b / latency(b). Batches hold queries of one size class, each class its share of the items,
so a device that serves b items a batch serves b / sum(share * latency(b, class)) on average; and b may run where even
the slowest class that is in demand keeps to SLO / 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from scheduler.allocation.problem import LatencyProfile
from workers.protocol.shapes import of_class
from workers.protocol.specs import ProfilePoint

#: seconds after which what arrived counts half
HALF_LIFE_S = 20.0
#: seconds for which a size class counts as asked for after its last query
ASKED_FOR_S = 900.0

#: share of the items by size class; all of them in the largest where nothing is known
ANY: Mapping[int, float] = {0: 1.0}


def mixes(
    seconds: Iterable[tuple[int, Mapping[str, Mapping[int, float]]]],
    asked_for: Mapping[str, Collection[int]],
    now: float,
) -> dict[str, dict[int, float]]:
    """Return shares by size class, by application, where something is known.

    They are from 0 to 1 and add up to 1. A class with a share of 0 is asked for now and then.

    Args:
        seconds: (t, {application: {size class: items}}) of the last seconds, in any order.
        asked_for: classes by application that arrived within :data:`ASKED_FOR_S`.
    """
    weights: dict[str, dict[int, float]] = {
        name: dict.fromkeys(classes, 0.0) for name, classes in asked_for.items() if classes
    }
    for t, applications in seconds:
        weight = 0.5 ** (max(0.0, now - t) / HALF_LIFE_S)
        for name, items in applications.items():
            for size, count in items.items():
                if count > 0:
                    mine = weights.setdefault(name, {})
                    mine[size] = mine.get(size, 0.0) + weight * count
    return {name: _shares(mine) for name, mine in weights.items()}


def _shares(weights: dict[int, float]) -> dict[int, float]:
    total = sum(weights.values())
    if total > 0:
        return {size: weight / total for size, weight in weights.items()}
    # Nothing arrived recently: the next query may be as large as those before were.
    largest = 0 if 0 in weights else max(weights)
    return {size: float(size == largest) for size in weights}


def profile(
    points: Sequence[ProfilePoint], mix: Mapping[int, float], memory_bytes: int = 0, load_s: float = 0.0
) -> LatencyProfile:
    """Return a profile (p95) as strategies use it, without size classes.

    Its batches are those that were measured in every class of the mix.

    Args:
        mix: shares by class, adding up to 1; some may be 0.
    """
    by_class = {size: {point.batch: point.p95_s for point in of_class(points, size)} for size in mix}
    common = sorted(set.intersection(*(set(latencies) for latencies in by_class.values())))
    mean = tuple((b, sum(mix[size] * latencies[b] for size, latencies in by_class.items())) for b in common)
    slowest = tuple((b, max(latencies[b] for latencies in by_class.values())) for b in common)
    one = len({tuple(latencies.items()) for latencies in by_class.values()}) == 1
    return LatencyProfile(slowest if one else mean, memory_bytes, load_s, slowest=() if one else slowest)
