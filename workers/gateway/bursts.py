"""Noticing that an application's demand left the band that the plan was made for. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from workers.protocol.control import Burst
from workers.protocol.specs import Band


class _Arrivals:
    """Arrivals in slots of 100 ms over the last 10 s."""

    SLOT_S = 0.1
    SLOTS = 100

    def __init__(self, now: float):
        self.started = now
        self._slot = int(now / self.SLOT_S)
        self._rows = [0] * self.SLOTS
        self._queries = [0] * self.SLOTS

    def _advance(self, now: float) -> None:
        slot = int(now / self.SLOT_S)
        for passed in range(self._slot + 1, min(slot, self._slot + self.SLOTS) + 1):
            self._rows[passed % self.SLOTS] = 0
            self._queries[passed % self.SLOTS] = 0
        self._slot = max(self._slot, slot)

    def add(self, rows: int, now: float) -> None:
        if int(now / self.SLOT_S) != self._slot:
            self._advance(now)
        place = self._slot % self.SLOTS
        self._rows[place] += rows
        self._queries[place] += 1

    def last(self, seconds: float, now: float) -> tuple[float, int]:
        """(rows/s, queries) over the last whole slots that make up ``seconds``."""
        self._advance(now)
        slots = round(seconds / self.SLOT_S)
        places = [(self._slot - 1 - i) % self.SLOTS for i in range(min(slots, self.SLOTS - 1))]
        return sum(self._rows[p] for p in places) / seconds, sum(self._queries[p] for p in places)


class BurstDetector:
    """Says when a new plan is due.

    Above the band: the rate of the last second, from at least ``min_queries`` queries, is higher than ``high``; or,
    sooner, that of the last 0.3 s is higher by more than three deviations of such a short count. Below:
    the rate of the last 10 s is lower than ``low``. Each application is reported at most once a second, and again for
    the same plan only when its rate moved on by another ``step`` in the same direction.
    """

    SHORT_S = 0.3

    def __init__(self, min_queries: int = 5, step: float = 0.2, low_s: float = 9.9):
        self._min_queries = min_queries
        self._step = step
        self._low_s = low_s
        self._bands: Mapping[str, Band] = {}
        self._plan_version = 0
        self._since = 0.0
        self._arrivals: dict[str, _Arrivals] = {}
        self._reported: dict[str, tuple[float, float, int]] = {}

    def set_plan(self, bands: Mapping[str, Band], plan_version: int, now: float) -> None:
        """The bands of the newest plan known; what was reported for an older one is forgotten."""
        if plan_version != self._plan_version:
            self._reported = {name: (at, 0.0, 0) for name, (at, _, _) in self._reported.items()}
        self._bands, self._plan_version, self._since = bands, plan_version, now
        self._arrivals = {name: a for name, a in self._arrivals.items() if name in bands}

    def arrived(self, application: str, rows: int, now: float) -> None:
        """A query arrived."""
        if application in self._bands:
            known = self._arrivals.get(application)
            if known is None:
                known = self._arrivals[application] = _Arrivals(now)
            known.add(rows, now)

    def check(self, now: float) -> list[Burst]:
        """Bursts to report now; call it several times a second."""
        bursts = []
        for application, band in self._bands.items():
            found = self._outside(application, band, now)
            if found is None:
                continue
            rate, direction = found
            last_at, last_rate, last_direction = self._reported.get(application, (-1e9, 0.0, 0))
            if now - last_at < 1.0:
                continue
            if direction == last_direction and not self._moved_on(rate, last_rate, direction):
                continue
            self._reported[application] = (now, rate, direction)
            bursts.append(Burst(application=application, rate=rate, plan_version=self._plan_version))
        return bursts

    def _outside(self, application: str, band: Band, now: float) -> tuple[float, int] | None:
        arrivals = self._arrivals.get(application)
        rate, queries = arrivals.last(1.0, now) if arrivals is not None else (0.0, 0)
        if rate > band.high and queries >= self._min_queries:
            return rate, 1
        short, queries = arrivals.last(self.SHORT_S, now) if arrivals is not None else (0.0, 0)
        usual = band.high * self.SHORT_S
        if queries >= self._min_queries and short * self.SHORT_S > usual + 3 * math.sqrt(usual):
            return short, 1
        # A plan is given its 10 s too, or the quiet before it would be held against it.
        if now - self._since >= self._low_s:
            rate = arrivals.last(self._low_s, now)[0] if arrivals is not None else 0.0
            if rate < band.low:
                return rate, -1
        return None

    def _moved_on(self, rate: float, last: float, direction: int) -> bool:
        return rate > last * (1 + self._step) if direction > 0 else rate < last * (1 - self._step)
