"""Deferred accounting of batches: statistics, metrics and estimates.

They are updated for many batches at once.

Between two short runs, accounting for one batch takes several times as long as it takes for many at once, while code
and data are cached. Nothing reads the accounts between two batches; what does calls
:meth:`DeferredAccounting.settle` first.
"""

from __future__ import annotations

import msgspec

from .loaded import Loaded
from .meters import Meters
from .stats import DeviceSecond

#: entries that may be left to account for
_MOST = 64
#: seconds for which these may have held the device
_MOST_S = 0.02


class Entry(msgspec.Struct, eq=False):
    """One batch's account.

    Attributes:
        rows, queries, failed: their numbers; ``failed`` counts queries.
    """

    loaded: Loaded
    rows: int
    queries: int
    failed: int
    waited_s: float  # seconds from receipt to start
    run_s: float  # seconds inside ``session.run``
    occupied_s: float  # seconds that it occupied the device
    ended: float  # when it ended, in seconds on the monotonic clock
    extent: int  # the largest open dimension of its queries


class DeferredAccounting:
    def __init__(self, second: DeviceSecond, meters: Meters):
        self._second = second
        self._meters = meters
        self._entries: list[Entry] = []
        self._occupied_s = 0.0

    def note(self, entry: Entry) -> None:
        entries = self._entries
        entries.append(entry)
        self._occupied_s += entry.occupied_s
        if self._occupied_s > _MOST_S or len(entries) >= _MOST:
            self.settle()

    def settle(self) -> None:
        entries = self._entries
        if not entries:
            return
        self._entries, self._occupied_s = [], 0.0
        for entry in entries:
            loaded, rows, run_s = entry.loaded, entry.rows, entry.run_s
            application, variant = loaded.variant.application, loaded.variant.name
            if run_s > 0 and not entry.failed:
                loaded.at(entry.extent).observe(entry.ended, rows, run_s, entry.extent)
            self._second.batch(loaded, rows, run_s)
            self._meters.ran(variant, rows, run_s)
            self._meters.waited(application, entry.waited_s, entry.queries)
            self._meters.answered(application, variant, "ok", entry.queries - entry.failed)

    def profiled(self, took_s: float) -> None:
        self._second.profiled(took_s)
        self._meters.profiled(took_s)
