"""Noticing that an application's demand left the band that the plan was made for. Pure.

Arrivals are counted in slots of :data:`SLOT_S`, numbered on the counter's own clock. A gateway that serves alone judges
by its own (:meth:`BurstDetector.check`). One of several sees only a part, so it tells its counts
(:meth:`BurstDetector.report`), and the control plane judges their sum by the same rule (:class:`BurstRule`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from workers.protocol.control import Arrivals, Burst
from workers.protocol.specs import Band

SLOT_S = 0.1
#: slots that are looked at: those of a second, the fewest that may show a burst, those that show a lasting rise, and
#: those that show that demand fell
SECOND = 10
SHORT = 3
MEDIUM = 30
LONG = 99
#: slots kept: more than the longest window has, for counts that are told late
KEPT = 128


def slot_at(now: float) -> int:
    """The slot that has begun but not ended at ``now``."""
    return int(now / SLOT_S)


class Slots:
    """Rows and queries of one application, by slot; the newest :data:`KEPT`."""

    __slots__ = ("_newest", "_queries", "_rows")

    def __init__(self, slot: int):
        self._newest = slot
        self._rows = [0] * KEPT
        self._queries = [0] * KEPT

    def add(self, slot: int, rows: int, queries: int = 1) -> None:
        """Count arrivals; those of a slot that is no longer kept are left out."""
        if slot > self._newest:
            for passed in range(max(self._newest, slot - KEPT) + 1, slot + 1):
                self._rows[passed % KEPT] = self._queries[passed % KEPT] = 0
            self._newest = slot
        elif slot <= self._newest - KEPT:
            return
        self._rows[slot % KEPT] += rows
        self._queries[slot % KEPT] += queries

    def of(self, slot: int) -> tuple[int, int]:
        """(rows, queries) of one slot."""
        if not self._newest - KEPT < slot <= self._newest:
            return 0, 0
        return self._rows[slot % KEPT], self._queries[slot % KEPT]

    def before(self, end: int, slots: int) -> tuple[int, int]:
        """(rows, queries) of the ``slots`` slots before slot ``end``."""
        first, last = max(end - slots, self._newest - KEPT + 1), min(end, self._newest + 1)
        places = [slot % KEPT for slot in range(first, last)]
        return sum(self._rows[p] for p in places), sum(self._queries[p] for p in places)


class BurstRule:
    """Says when a new plan is due.

    Above the band: the rate of the last second, from at least ``min_queries`` queries, is higher than ``high``; or,
    sooner, that of the last 0.3 s is higher than ``surge``; or, later, that of the last 3 s is higher than ``rise``.
    Below: the rate of the last 10 s is lower than ``low``. Each application is reported at most once a second, and
    again for the same plan only when its rate moved on by another ``step`` in the same direction.

    Time is told in slots, so that whoever judges the same counts reports the same bursts, however late it has them.
    """

    def __init__(self, min_queries: int = 5, step: float = 0.2):
        self._min_queries = min_queries
        self._step = step
        self.bands: Mapping[str, Band] = {}
        self.plan_version = 0
        self._since = 0
        self._reported: dict[str, tuple[int, float, int]] = {}

    def set_plan(self, bands: Mapping[str, Band], plan_version: int, slot: int) -> None:
        """The bands of the newest plan known; what was reported for an older one is forgotten."""
        if plan_version != self.plan_version:
            self._reported = {name: (at, 0.0, 0) for name, (at, _, _) in self._reported.items()}
        self.bands, self.plan_version, self._since = bands, plan_version, slot

    def restart(self, slot: int) -> None:
        """Counts from before the slot may lack something: nothing is called low before they have gone by."""
        self._since = slot

    def check(self, end: int, counts: Callable[[str, int], tuple[int, int]]) -> list[Burst]:
        """Bursts to report at the beginning of slot ``end``. ``counts``: application and number of slots -> (rows,
        queries) in that many slots before ``end``."""
        bursts = []
        for application, band in self.bands.items():
            found = self._outside(application, band, end, counts)
            if found is None:
                continue
            rate, direction = found
            last_at, last_rate, last_direction = self._reported.get(application, (-math.inf, 0.0, 0))
            if end - last_at < SECOND:
                continue
            if direction == last_direction and not self._moved_on(rate, last_rate, direction):
                continue
            self._reported[application] = (end, rate, direction)
            bursts.append(Burst(application=application, rate=rate, plan_version=self.plan_version))
        return bursts

    def _outside(
        self, application: str, band: Band, end: int, counts: Callable[[str, int], tuple[int, int]]
    ) -> tuple[float, int] | None:
        for slots, limit in ((SECOND, band.high), (SHORT, band.surge), (MEDIUM, band.rise)):
            # A plan knows what came before it: what lasts is judged by what came since.
            if limit <= 0 or (slots > SECOND and end - self._since < slots):
                continue
            rows, queries = counts(application, slots)
            rate = rows / (slots * SLOT_S)
            if rate > limit and queries >= self._min_queries:
                return rate, 1
        if end - self._since >= LONG:
            rate = counts(application, LONG)[0] / (LONG * SLOT_S)
            if rate < band.low:
                return rate, -1
        return None

    def _moved_on(self, rate: float, last: float, direction: int) -> bool:
        return rate > last * (1 + self._step) if direction > 0 else rate < last * (1 - self._step)


class BurstDetector:
    """One gateway's arrivals, of applications that the plan knows: judged here, or told to be judged with others'."""

    def __init__(self, min_queries: int = 5, step: float = 0.2):
        self._rule = BurstRule(min_queries, step)
        self._bands: Mapping[str, Band] = {}
        self._arrivals: dict[str, Slots] = {}
        self._told = -1
        self._busy = False

    def set_plan(self, bands: Mapping[str, Band], plan_version: int, now: float) -> None:
        """See :meth:`BurstRule.set_plan`."""
        self._rule.set_plan(bands, plan_version, slot_at(now))
        self._bands = bands
        self._arrivals = {name: slots for name, slots in self._arrivals.items() if name in bands}

    def restart(self, now: float) -> None:
        """Other gateways came or went: from now on more, or less, of the demand arrives here."""
        self._rule.restart(slot_at(now))

    def arrived(self, application: str, rows: int, now: float) -> None:
        """A query arrived."""
        if application in self._bands:
            slot = slot_at(now)
            known = self._arrivals.get(application)
            if known is None:
                known = self._arrivals[application] = Slots(slot)
            known.add(slot, rows)

    @staticmethod
    def slot_ends_in(now: float) -> float:
        """Seconds until the slot at ``now`` has ended."""
        return (slot_at(now) + 1) * SLOT_S - now

    def check(self, now: float) -> list[Burst]:
        """Bursts to report now, by what arrived here alone; call it at the end of each slot."""
        end = slot_at(now)
        return self._rule.check(end, lambda name, slots: self._before(name, end, slots))

    def _before(self, application: str, end: int, slots: int) -> tuple[int, int]:
        known = self._arrivals.get(application)
        return known.before(end, slots) if known is not None else (0, 0)

    def report(self, now: float) -> Arrivals | None:
        """What arrived in the slots that ended since the last report (the first time: in the last 10 s); None: nothing
        did, and that is known. Call it at the end of each slot."""
        end = slot_at(now)
        first = max(self._told + 1, end - LONG)
        self._told = max(self._told, end - 1)
        told = {}
        for name, slots in self._arrivals.items():
            counts = tuple(slots.of(slot) for slot in range(first, end))
            if any(queries for _, queries in counts):
                told[name] = counts
        # A last report says that it has ended: whoever adds up need not wait for more of that slot.
        ended, self._busy = self._busy and not told, bool(told)
        return Arrivals(slot=end - 1, applications=told) if told or ended else None
