"""What batches did: written down as each ends, and accounted for by the dozen.

To account for a batch (statistics, metrics, what the device's pace is learned from) takes several times as long between
two short runs as it takes for many at once, when code and data are at hand. Nobody reads the accounts between two
batches that were granted; before anything is decided or told by them, :meth:`Ledger.settle` is called.
"""

from __future__ import annotations

from .estimates import Guard
from .lanes import Batch, Lanes
from .loaded import Loaded
from .meters import Meters
from .stats import Second

#: entries that may be left to account for, and for how long these may have held the device
_MOST, _MOST_S = 64, 0.02

#: of a granted batch: the variant, rows, queries, how many of them failed; for how many seconds it waited, ran and held
#: the device; by how many it was chosen later than planned; when it ended, on the event loop's clock; and the largest
#: open dimension of its queries
Entry = tuple[Loaded, int, int, int, float, float, float, float, float, int]
_TURN = 6


class Ledger:
    """Entries in order of time; all times in seconds."""

    def __init__(self, lanes: Lanes, guard: Guard, second: Second, meters: Meters):
        self._lanes = lanes
        self._guard = guard
        self._second = second
        self._meters = meters
        self._granted: list[Entry] = []
        self._held_s = 0.0

    def note(self, entry: Entry) -> None:
        """A granted batch ended."""
        entries = self._granted
        entries.append(entry)
        self._held_s += entry[_TURN]
        if self._held_s > _MOST_S or len(entries) >= _MOST:
            self.settle()

    def settle(self) -> None:
        """Account for all that was noted."""
        entries = self._granted
        if not entries:
            return
        self._granted, self._held_s = [], 0.0
        for loaded, rows, queries, failed, waited_s, run_s, turn_s, overslept_s, now, extent in entries:
            expected_s = loaded.at(extent).model(now).seconds(rows)
            self._lanes.ended_granted(loaded, rows, expected_s, now)
            self._ran(loaded, rows, expected_s, bool(failed), run_s, turn_s, overslept_s, now, extent)
            application, variant = loaded.variant.application, loaded.variant.name
            self._meters.waited(application, waited_s, queries)
            self._meters.answered(application, variant, "ok", queries - failed)

    def lane(self, batch: Batch, failed: bool, run_s: float, turn_s: float, overslept_s: float, now: float) -> None:
        """Account for a batch that a lane formed; fields as in :data:`Entry`."""
        self.settle()
        loaded, rows = batch.loaded, batch.rows
        expected_s = loaded.at(batch.extent).model(now).seconds(rows)
        self._lanes.observe(batch, now, run_s)
        self._ran(loaded, rows, expected_s, failed, run_s, turn_s, overslept_s, now, batch.extent)

    def _ran(
        self,
        loaded: Loaded,
        rows: int,
        expected_s: float,
        failed: bool,
        run_s: float,
        turn_s: float,
        overslept_s: float,
        now: float,
        extent: int,
    ) -> None:
        if run_s > 0 and not failed:
            self._guard.observe(turn_s + overslept_s - expected_s)
            loaded.at(extent).observe(now, rows, run_s, turn_s, extent)
        self._second.batch(loaded, rows, run_s)
        self._meters.ran(loaded.variant.name, rows, run_s)
