"""Sums of per-second statistics by bucket of time. Pure.

Everything is a sum of whole numbers (or, for columns in :data:`HIGHEST`, a maximum), so buckets can be merged in any
order and nothing is rounded twice. A rate is a sum by ``seconds``, the seconds for which there is a report: a gap in a
bucket does not lower it, and a second that the wall clock showed twice counts twice on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Tier(NamedTuple):
    resolution: int
    keep: int


#: two days, two weeks, and a year twice: coarse rows make long ranges quick
TIERS = (Tier(10, 17280), Tier(300, 4032), Tier(3600, 8760), Tier(86400, 367))

#: of an application. Queries, but ``arrived_rows``; accuracies in 1e-4 percent, latencies in microseconds, each times
#: the queries that have it: ``in_time`` for the accuracies, ``in_time + late`` for ``p50_sum`` and ``p95_sum``
APPLICATION = (
    "arrived",
    "arrived_rows",
    "in_time",
    "late",
    "dropped",
    "failed",
    "accuracy_sum",
    "normalized_sum",
    "p50_sum",
    "p95_sum",
    "p95_max",
)
#: of a device, each over its reports, one a second: shares in 1e-4, memory in bytes, temperature in 0.1 degrees
#: Celsius and power in milliwatts over the reports that have them
DEVICE = ("reports", "busy", "profiling", "queued", "memory", "warmth_n", "warmth", "power_n", "power")
HIGHEST = frozenset({"p95_max"})
_PEAK = APPLICATION.index("p95_max")
#: scales of accuracies, and of latencies in ms
FINE, MICRO = 10_000, 1000
#: largest number in a column
LARGEST = 2**62


@dataclass
class Bucket:
    """Sums by name; ``variants``: queries answered, by ``APPLICATION/VARIANT``."""

    seconds: int = 0
    applications: dict[str, list[int]] = field(default_factory=dict)
    variants: dict[str, int] = field(default_factory=dict)
    devices: dict[str, list[int]] = field(default_factory=dict)

    def merge(self, other: Bucket) -> None:
        self.seconds += other.seconds
        for name, sums in other.applications.items():
            self.applications[name] = merged(self.applications.get(name), sums)
        for name, count in other.variants.items():
            self.variants[name] = min(LARGEST, self.variants.get(name, 0) + count)
        for name, sums in other.devices.items():
            known = self.devices.get(name)
            self.devices[name] = sums.copy() if known is None else [a + b for a, b in zip(known, sums, strict=True)]

    def total(self) -> list[int]:
        found = [0] * len(APPLICATION)
        for sums in self.applications.values():
            found = merged(found, sums)
        return found


def merged(known: list[int] | None, sums: list[int]) -> list[int]:
    if known is None:
        return sums.copy()
    found = [min(LARGEST, a + b) for a, b in zip(known, sums, strict=True)]
    found[_PEAK] = max(known[_PEAK], sums[_PEAK])
    return found


def _fixed(value: Any, scale: int) -> int:
    return min(LARGEST, round((value or 0) * scale))


def application_sums(counts: Mapping[str, Any]) -> list[int]:
    plain = [_fixed(counts.get(name), 1) for name in APPLICATION[:6]]
    answered = plain[2] + plain[3]
    p50, p95 = _fixed(counts.get("p50_ms"), MICRO), _fixed(counts.get("p95_ms"), MICRO)
    sums = [_fixed(counts.get(name), FINE) for name in ("accuracy_sum", "normalized_sum")]
    return [*plain, *sums, min(LARGEST, p50 * answered), min(LARGEST, p95 * answered), p95 if answered else 0]


def device_sums(stats: Mapping[str, Any]) -> list[int]:
    celsius, watts = stats.get("celsius"), stats.get("watts")
    return [
        1,
        _fixed(stats.get("busy"), FINE),
        _fixed(stats.get("profiling"), FINE),
        _fixed(stats.get("queued_rows"), 1),
        _fixed(stats.get("memory_bytes"), 1),
        int(celsius is not None),
        _fixed(celsius, 10),
        int(watts is not None),
        _fixed(watts, 1000),
    ]


def add_gateway_second(bucket: Bucket, second: Mapping[str, Any]) -> None:
    """Add all of a gateway's second but ``seconds``."""
    for name, counts in second.get("applications", {}).items():
        sums = application_sums(counts)
        if any(sums):
            bucket.applications[name] = merged(bucket.applications.get(name), sums)
        for variant, answered in (counts.get("by_variant") or {}).items():
            if count := _fixed(answered, 1):
                key = f"{name}/{variant}"
                bucket.variants[key] = min(LARGEST, bucket.variants.get(key, 0) + count)


def add_node_second(bucket: Bucket, second: Mapping[str, Any]) -> None:
    bucket.merge(Bucket(devices={stats["device"]: device_sums(stats) for stats in second.get("devices", ())}))


def coarsened(buckets: Iterable[tuple[int, Bucket]], resolution: int) -> dict[int, Bucket]:
    """Buckets by their begin, merged into buckets of ``resolution`` seconds."""
    found: dict[int, Bucket] = {}
    for start, bucket in buckets:
        found.setdefault(start - start % resolution, Bucket()).merge(bucket)
    return found


class Counted:
    """The seconds of the steady clock that were counted already.

    They are kept for the last :data:`SPAN`: several gateways report the same second, one of them perhaps a quarter of
    an hour later. A report of a whole second's end counts for the second half a second before, too, so that one which
    comes a little early or late leaves no gap.
    """

    #: seconds; members' reports are younger
    SPAN = 1024

    def __init__(self, boot: str = "", newest: int = 0, mask: int = 0) -> None:
        self._boot, self._newest, self._mask = boot, newest, mask

    def state(self) -> list[Any]:
        return [self._boot, self._newest, f"{self._mask:x}"]

    @classmethod
    def of(cls, state: list[Any] | None) -> Counted:
        if not state:
            return cls()
        return cls(str(state[0]), int(state[1]), int(state[2], 16))

    def new(self, boot: str, moment: float) -> int:
        """How many seconds of a report that was stored at ``moment`` of ``boot`` are new."""
        if boot != self._boot:
            self._boot, self._newest, self._mask = boot, 0, 0
        return sum(self._count(second) for second in {int(moment), int(moment - 0.5)})

    def _count(self, second: int) -> int:
        if second > self._newest:
            self._mask = (self._mask << min(self.SPAN, second - self._newest)) & ((1 << self.SPAN) - 1)
            self._newest = second
        behind = self._newest - second
        if behind >= self.SPAN or self._mask >> behind & 1:
            return 0
        self._mask |= 1 << behind
        return 1
