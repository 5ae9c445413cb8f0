"""Bursts over several gateways: each tells what arrived there, and the sum is judged as a lone gateway judges. Pure.

Gateways number slots on clocks of their own. A report comes at its last slot's end, so the quickest reports of late
tell how far a gateway's clock is from this one (as NTP's clock filter takes the sample of the least delay, RFC 5905,
section 10), and a report that was held up on its way still counts where it belongs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from workers.gateway.bursts import LONG, SLOT_S, BurstRule, Slots, slot_at
from workers.protocol.control import Arrivals, Burst
from workers.protocol.specs import Band

#: how fast (s/s) two clocks may drift apart: by so much the quickest report loses its authority
DRIFT = 1e-3
#: slots by which the clocks must be off before the numbering follows: no wavering between two numbers
STRAY = 0.75
#: for so many seconds a gateway that is not connected any more is taken to serve on
LINGERS_S = 60.0


class _Gateway:
    """``visit``: its connection. ``shift``: what is added to its slots' numbers to have them on this clock. ``told``:
    the first slot, on this clock, of which it has told nothing yet."""

    def __init__(self, visit: str) -> None:
        self.visit = visit
        self.shift = 0
        self.told = -math.inf
        self._slots: dict[str, Slots] = {}
        self._behind = math.inf
        self._heard_at = -math.inf

    def heard(self, report: Arrivals, now: float) -> None:
        behind = now - (report.slot + 1) * SLOT_S
        allowed = self._behind + DRIFT * (now - self._heard_at) if self._behind < math.inf else math.inf
        self._behind, self._heard_at = min(behind, allowed), now
        if self.told == -math.inf or abs(self._behind / SLOT_S - self.shift) > STRAY:
            self.shift = round(self._behind / SLOT_S)
        self.told = report.slot + 1 + self.shift
        for name, counts in report.applications.items():
            first = report.slot - len(counts) + 1
            slots = self._slots.setdefault(name, Slots())
            for slot, (rows, queries) in enumerate(counts, first):
                slots.add(slot, rows, queries)

    def before(self, application: str, end: int, slots: int) -> tuple[int, int]:
        known = self._slots.get(application)
        return known.before(end - self.shift, slots) if known is not None else (0, 0)

    def forget(self, applications: Mapping[str, Band]) -> None:
        self._slots = {name: slots for name, slots in self._slots.items() if name in applications}


class TotalArrivals:
    """What arrives at all gateways together. Calls tell of gateways by name and ``visit``, which tells one connection
    of a gateway from the next, and of time in seconds on one clock. ``len``: how many gateways are connected.

    Args:
        lingers_s: for so long one that is not connected any more is taken to serve on.
    """

    def __init__(self, lingers_s: float = LINGERS_S) -> None:
        self._lingers_s = lingers_s
        self._rule = BurstRule()
        self._gateways: dict[str, _Gateway] = {}
        self._gone: dict[str, float] = {}
        self._judged = -1

    def set_plan(self, bands: Mapping[str, Band], plan_version: int, now: float) -> None:
        """The plan that gateways are given now; one that is known, or older than it, changes nothing. What has not been
        judged yet is judged by it."""
        if plan_version <= self._rule.plan_version:
            return
        self._rule.set_plan(bands, plan_version, slot_at(now))
        for gateway in self._gateways.values():
            gateway.forget(bands)

    def __len__(self) -> int:
        return len(self._gateways)

    def joined(self, gateway: str, visit: str, now: float) -> None:
        """A gateway serves from now on, under a new connection."""
        self.forget(now)
        alone = self.serving < 2
        self._gone.pop(gateway, None)
        if alone:
            # What arrived until now the one that there was has judged by itself.
            self._judged = max(self._judged, slot_at(now))
        self._gateways[gateway] = _Gateway(visit)
        self._rule.restart(slot_at(now))

    def left(self, gateway: str, visit: str, now: float, stopped: bool = False) -> bool:
        """A connection ended; False where that changes nothing, as a newer one of the gateway took over. ``stopped``:
        the gateway said so itself, and serves no more."""
        known = self._gateways.get(gateway)
        if known is None or known.visit != visit:
            return False
        del self._gateways[gateway]
        if not stopped:
            self._gone[gateway] = now
        self._rule.restart(slot_at(now))
        return True

    @property
    def serving(self) -> int:
        """How many gateways serve, as far as is known: those connected, and those that lost their connection not long
        ago. It may be their link alone that is lost, and whoever takes itself for the only one does harm then."""
        return len(self._gateways) + len(self._gone)

    def forget(self, now: float) -> bool:
        """Give up those that have been away for ``lingers_s``; whether there were any, and the others must be told."""
        over = [name for name, left in self._gone.items() if now - left >= self._lingers_s]
        for name in over:
            del self._gone[name]
        return bool(over)

    def heard(self, gateway: str, visit: str, report: Arrivals, now: float) -> None:
        """A gateway's report, at the moment at which it came."""
        known = self._gateways.get(gateway)
        if known is not None and known.visit == visit:
            known.heard(report, now)

    def check(self, now: float) -> list[Burst]:
        """Bursts to report now, oldest first; call it after each report, and about once a second while none comes.

        Judged are the slots of which every gateway has told, and at the latest one slot after their end: a gateway at
        which nothing arrives tells nothing. A lone gateway judges for itself.
        """
        if not self._gateways or self.serving < 2:
            return []
        end = int(max(slot_at(now) - 1, min(gateway.told for gateway in self._gateways.values())))
        first, self._judged = max(self._judged + 1, end - LONG), max(self._judged, end)
        return [burst for slot in range(first, end + 1) for burst in self._judge(slot)]

    def _judge(self, end: int) -> list[Burst]:
        return self._rule.check(end, lambda name, slots: self._before(name, end, slots))

    def _before(self, application: str, end: int, slots: int) -> tuple[int, int]:
        counts = [gateway.before(application, end, slots) for gateway in self._gateways.values()]
        return sum(rows for rows, _ in counts), sum(queries for _, queries in counts)
