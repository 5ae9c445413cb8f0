"""Burst detection over the summed arrivals of several gateways. Pure.

Gateways number slots on their own clocks. A report is sent at its last slot's end, so the fastest recent reports give
the offset of a gateway's clock (as NTP's clock filter takes the sample of least delay, RFC 5905, section 10), and a
delayed report still counts in its own slots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from workers.gateway.bursts import LONG, SLOT_S, BurstRule, Slots, slot_at
from workers.protocol.control import Arrivals, Burst
from workers.protocol.specs import Band

#: largest drift between two clocks, s/s: the rate at which the fastest report's offset ages
DRIFT = 1e-3
#: offset in slots from which the numbering follows: hysteresis between two numbers
STRAY = 0.75
#: seconds for which a disconnected gateway is assumed to go on serving
LINGERS_S = 60.0


class _Gateway:
    """One gateway's recent slots.

    Attributes:
        visit: its connection.
        shift: added to its slot numbers to convert them to this clock.
        reported_until: first slot, on this clock, that it has not reported.
    """

    def __init__(self, visit: str) -> None:
        self.visit = visit
        self.shift = 0
        self.reported_until = -math.inf
        self._slots: dict[str, Slots] = {}
        self._behind = math.inf
        self._reported_at = -math.inf

    def report(self, report: Arrivals, now: float) -> None:
        behind = now - (report.slot + 1) * SLOT_S
        allowed = self._behind + DRIFT * (now - self._reported_at) if self._behind < math.inf else math.inf
        self._behind, self._reported_at = min(behind, allowed), now
        if self.reported_until == -math.inf or abs(self._behind / SLOT_S - self.shift) > STRAY:
            self.shift = round(self._behind / SLOT_S)
        self.reported_until = report.slot + 1 + self.shift
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
    """Arrivals at all gateways together.

    Calls name a gateway and its ``visit``, which identifies its connection; times are seconds on one clock. ``len``:
    number of connected gateways.

    Args:
        lingers_s: seconds for which a disconnected gateway is assumed to go on serving.
    """

    def __init__(self, lingers_s: float = LINGERS_S) -> None:
        self._lingers_s = lingers_s
        self._rule = BurstRule()
        self._gateways: dict[str, _Gateway] = {}
        self._gone: dict[str, float] = {}
        self._judged = -1

    def set_plan(self, bands: Mapping[str, Band], plan_version: int, now: float) -> None:
        """Adopt the plan that gateways get now, unless it is not newer.

        An older or equal version is ignored. Slots not judged yet are judged by the new plan.
        """
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
            # A lone gateway has judged its own arrivals until now.
            self._judged = max(self._judged, slot_at(now))
        self._gateways[gateway] = _Gateway(visit)
        self._rule.restart(slot_at(now))

    def left(self, gateway: str, visit: str, now: float, stopped: bool = False) -> bool:
        """Note that a connection ended; False if the gateway has a newer one.

        Args:
            stopped: the gateway closed it in order, and no longer serves.
        """
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
        """Number of gateways that may be serving.

        These are connected ones, and those disconnected within ``lingers_s``: only their link may be lost, and a
        gateway that wrongly assumes to be alone would misjudge bursts.
        """
        return len(self._gateways) + len(self._gone)

    def forget(self, now: float) -> bool:
        """Drop gateways that have been disconnected for ``lingers_s``.

        Returns:
            Whether there were any.
        """
        over = [name for name, left in self._gone.items() if now - left >= self._lingers_s]
        for name in over:
            del self._gone[name]
        return bool(over)

    def report(self, gateway: str, visit: str, report: Arrivals, now: float) -> None:
        """Add a gateway's report, received at ``now``."""
        known = self._gateways.get(gateway)
        if known is not None and known.visit == visit:
            known.report(report, now)

    def check(self, now: float) -> list[Burst]:
        """Return the bursts to report now, oldest first.

        Call it after each report, and about once a second while none comes. Slots are judged when every gateway has
        reported them, and at the latest one slot after their end: a gateway without arrivals sends no reports. A lone
        gateway judges for itself.
        """
        if not self._gateways or self.serving < 2:
            return []
        end = int(max(slot_at(now) - 1, min(gateway.reported_until for gateway in self._gateways.values())))
        first, self._judged = max(self._judged + 1, end - LONG), max(self._judged, end)
        return [burst for slot in range(first, end + 1) for burst in self._judge(slot)]

    def _judge(self, end: int) -> list[Burst]:
        return self._rule.check(end, lambda name, slots: self._before(name, end, slots))

    def _before(self, application: str, end: int, slots: int) -> tuple[int, int]:
        counts = [gateway.before(application, end, slots) for gateway in self._gateways.values()]
        return sum(rows for rows, _ in counts), sum(queries for _, queries in counts)
