"""The device's accounts: statistics of each second for the control plane, metrics, and estimates.

Batches are accounted for many at a time: between two short runs one takes several times as long as it takes among many,
while code and data are cached. Nothing reads the accounts between two batches; what does calls :meth:`Accounts.settle`
first.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from workers.protocol.control import Overload
from workers.protocol.specs import DeviceStats, VariantStats

from .loaded import DeviceResidents, Loaded
from .meters import Meters

#: entries that may be left to account for
_MOST = 64
#: seconds for which these may have held the device
_MOST_S = 0.02
#: share of a second's rows, and number of them, from which refusals are called an overload
OVERLOAD_SHARE = 0.05
OVERLOAD_ROWS = 3


class Entry(msgspec.Struct, eq=False):
    """One batch's account."""

    loaded: Loaded
    rows: int
    queries: int
    failed: int  # queries
    waited_s: float  # seconds from receipt to start
    run_s: float  # seconds inside ``session.run``
    occupied_s: float  # seconds that it occupied the device
    ended: float  # when it ended, in seconds on the monotonic clock
    extent: int  # the largest open dimension of its queries


@dataclass(slots=True)
class _Ran:
    application: str
    rows: int = 0
    batches: int = 0
    busy_s: float = 0.0


class Accounts:
    def __init__(self, device: str, residents: DeviceResidents, now: float):
        self._device = device
        self._residents = residents
        self.meters = Meters(device)
        self._entries: list[Entry] = []
        self._occupied_s = 0.0
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._began = now
        self._profiling_s = 0.0
        self._ran: dict[int, _Ran] = {}
        self._arrived: dict[str, int] = {}
        self._refused: dict[str, int] = {}

    def arrived(self, application: str, rows: int) -> None:
        self._arrived[application] = self._arrived.get(application, 0) + rows

    def refused(self, application: str, rows: int) -> None:
        """Rows refused as late or because the queue was full."""
        self._refused[application] = self._refused.get(application, 0) + rows

    def profiled(self, took_s: float) -> None:
        self._profiling_s += took_s
        self.meters.profiled(took_s)

    def ran(self, entry: Entry) -> None:
        entries = self._entries
        entries.append(entry)
        self._occupied_s += entry.occupied_s
        if self._occupied_s > _MOST_S or len(entries) >= _MOST:
            self.settle()

    def settle(self) -> None:
        entries, meters = self._entries, self.meters
        if not entries:
            return
        self._entries, self._occupied_s = [], 0.0
        for entry in entries:
            loaded, rows, run_s = entry.loaded, entry.rows, entry.run_s
            application, variant = loaded.variant.application, loaded.variant.name
            if run_s > 0 and not entry.failed:
                loaded.at(entry.extent).observe(entry.ended, rows, run_s, entry.extent)
            ran = self._ran.get(loaded.id)
            if ran is None:
                ran = self._ran[loaded.id] = _Ran(application)
            ran.rows += rows
            ran.batches += 1
            ran.busy_s += run_s
            meters.ran(variant, rows, run_s)
            meters.waited(application, entry.waited_s, entry.queries)
            meters.answered(application, variant, "ok", entry.queries - entry.failed)

    def close(
        self, now: float, queued_rows: int, memory_bytes: int, plan_version: int
    ) -> tuple[DeviceStats, list[Overload]]:
        """Close the second that ends at ``now``; its statistics, and likely overloads."""
        self.settle()
        elapsed, loaded = max(now - self._began, 1e-6), self._residents.variants
        overloads = [
            Overload(device=self._device, application=name, arrived=max(arrived, refused), refused=refused)
            for name, refused in self._refused.items()
            if refused >= max(OVERLOAD_ROWS, OVERLOAD_SHARE * (arrived := self._arrived.get(name, 0)))
        ]
        stats = DeviceStats(
            device=self._device,
            busy=min(1.0, sum(ran.busy_s for ran in self._ran.values()) / elapsed),
            profiling=min(1.0, self._profiling_s / elapsed),
            queued_rows=queued_rows,
            memory_bytes=memory_bytes,
            plan_version=plan_version,
            variants=tuple(
                VariantStats(
                    variant=id,
                    application=ran.application,
                    rows=ran.rows,
                    batches=ran.batches,
                    busy_s=ran.busy_s,
                    drift=loaded[id].ratio if id in loaded else 0.0,
                )
                for id, ran in sorted(self._ran.items())
            ),
        )
        self._begin(now)
        return stats, overloads
