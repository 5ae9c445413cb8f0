"""Congestion: the pressure that demand and waits call for. Pure.

Pressure tells of work that is scheduled; near the capacity of the devices that is too late. Long batches carry more
queries a second than short ones, and a query that has waited has time for short ones only. So the price of time is held
where devices carry the demand in long batches, and moved by the wait:

1. The *sustaining pressure* is the least one at whose price the devices' choices carry the demand.
2. At the *target wait* that pressure holds. Below, devices choose a little more accurately than the demand allows, and
   the queue grows; above, more quickly, until it shrinks.
3. Beyond the wait that leaves time for a *sustaining batch* devices could not carry the demand any more, and the queue
   would grow by itself: nothing is scheduled there (:func:`.selection.sustains`).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from ..options import LEVELS
from .demand_spread import DemandSpread
from .state import DemandNeeds, ServedClass

#: seconds between two looks at the demand; longer for more than ``EXACT`` pairs of an offer and a device group, so that
#: these looks never cost more than about a hundredth of a core
LOOK_S = 0.1
EXACT = 250
#: seconds after which a met pressure has 1/e of its weight in the usual one
USUAL_S = 3.0


class Congestion:
    def __init__(self) -> None:
        self.look_at = self._looked_at = -math.inf
        self._every_s = LOOK_S
        self._spread: DemandSpread | None = None
        self._waits_s: dict[ServedClass, float] = {}

    def look(self, classes: Collection[ServedClass], now: float) -> None:
        for served in classes:
            if served.permitted is None:
                # Others share its demand.
                served.demand.rate.measure(now)
        if self._spread is None or not self._spread.holds(classes):
            self._waits_s = {served: _regular_wait_s(served) for served in classes}
            longest_s = {served: served.slo_s - wait_s for served, wait_s in self._waits_s.items()}
            self._spread = DemandSpread(classes, longest_s)
            pairs = sum([len(offer.groups) for served in classes for offer in served.offers])
            self._every_s = LOOK_S * max(1.0, pairs / EXACT)
        kept, self._looked_at = math.exp((self._looked_at - now) / USUAL_S), now
        for served in classes:
            for offer in served.offers:
                offer.usual.look(kept)
        loads = self._spread.loads()
        for served in classes:
            if served not in loads:
                for offer in served.offers:
                    offer.needs = DemandNeeds()
                continue
            (level, least_load), wait_s = loads[served], self._waits_s[served]
            target_s = max(0.0, min(wait_s, served.slo_s * (1.0 - least_load)))
            for offer in served.offers:
                batch_s = offer.option_set.shortest_s(served.slo_s - wait_s, least_load)
                offer.needs = DemandNeeds(level / LEVELS, batch_s, target_s)
        self.look_at = now + self._every_s


def _regular_wait_s(served: ServedClass) -> float:
    """Return about how long queries wait for one of their devices.

    A single device has to finish a batch while the next one forms: half the SLO. The more devices there are, the more
    regularly one becomes free (the square-root law of queues with many servers).
    """
    count = sum([group.count for offer in served.offers for group in offer.groups])
    return served.slo_s / (1.0 + math.sqrt(count))
