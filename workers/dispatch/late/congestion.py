"""Congestion: how little time waiting queries leave for the batches needed.

Pure. Long batches carry more queries a second than short ones, and a query that has waited has time for short ones
only. So beyond some wait devices can no longer carry the demand, and the backlog grows by itself. The higher the
demand, the longer the batches that it needs, and the shorter that wait.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from .state import DeviceGroup, ServedClass

#: batches must carry this multiple of the demand: arrivals differ by a few percent from one half second to the next
HEADROOM = 1.05
#: seconds between two looks at the demand; longer for more than ``EXACT`` pairs of an offer and a device group, so that
#: these looks never cost more than about a hundredth of a core
LOOK_S = 0.1
EXACT = 1000


class Congestion:
    """Keeps ``sustaining_s`` of all offers.

    Attributes:
        look_at: when the demand is to be looked at next.
    """

    def __init__(self) -> None:
        self.look_at = -math.inf

    def look(self, classes: Collection[ServedClass], now: float) -> None:
        """Measure the demand, and find the batches that it needs."""
        loads: dict[DeviceGroup, float] = {}
        pairs = 0
        for served in classes:
            if served.permitted is None:
                # Others share its demand.
                served.demand.rate.measure(now)
                _add_load(loads, served)
        for served in classes:
            for offer in served.offers:
                pairs += len(offer.groups)
                load = max([loads.get(group, 0.0) for group in offer.groups], default=0.0)
                offer.sustaining_s = offer.option_set.shortest_s(served.slo_s, HEADROOM * load)
        self.look_at = now + LOOK_S * max(1.0, pairs / EXACT)


def _add_load(loads: dict[DeviceGroup, float], served: ServedClass) -> None:
    """Add the load of a class to the loads of its device groups.

    It is the part of their capacity that the class needs, as if it used all its devices alike.
    """
    if not served.demand.rate.value:
        return
    capacity = 0.0
    for offer in served.offers:
        capacity += offer.option_set.highest_throughput(served.slo_s) * sum([group.count for group in offer.groups])
    if capacity:
        load = served.demand.rate.value / capacity
        for offer in served.offers:
            for group in offer.groups:
                loads[group] = loads.get(group, 0.0) + load
