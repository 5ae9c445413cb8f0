"""Congestion: the pressure that demand and waits call for. Pure.

Pressure tells of work that is scheduled; near the capacity of the devices that is too late. Long batches carry more
queries a second than short ones, and a query that has waited has time for short ones only. So the price of time is held
where devices carry the demand in long batches, and moved by the wait:

1. The *sustaining pressure* is the least one at whose price the devices' choices carry the demand.
2. At the *target wait* it holds. Below, devices choose a little more accurately than the demand allows, and the queue
   grows; above, more quickly, until it shrinks.
3. Beyond the wait that leaves time for a *sustaining batch* devices could not carry the demand any more, and the queue
   would grow by itself: nothing is scheduled there (:func:`.overload.can_grow`).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from ..options import LEVELS
from .state import DemandNeeds, DeviceGroup, ServedClass

#: seconds between two looks at the demand; longer for more than ``EXACT`` pairs of an offer and a device group, so that
#: these looks never cost more than about a hundredth of a core
LOOK_S = 0.1
EXACT = 250


class Congestion:
    """Keeps the needs of all offers.

    Attributes:
        look_at: when the demand is to be looked at next.
    """

    def __init__(self) -> None:
        self.look_at = -math.inf

    def look(self, classes: Collection[ServedClass], now: float) -> None:
        """Measure the demand, and find what it needs."""
        loads: dict[DeviceGroup, list[float]] = {}
        pairs = 0
        for served in classes:
            pairs += sum(len(offer.groups) for offer in served.offers)
            if served.permitted is None:
                # Others share its demand.
                served.demand.rate.measure(now)
                _add_loads(loads, served)
        for served in classes:
            for offer in served.offers:
                worst = max([loads[group] for group in offer.groups if group in loads], default=None, key=_least_load)
                offer.needs = DemandNeeds()
                if worst is not None:
                    longest_s = served.slo_s - _regular_wait_s(served)
                    offer.needs = DemandNeeds(
                        next((level for level, load in enumerate(worst) if load <= 1.0), LEVELS) / LEVELS,
                        offer.option_set.shortest_s(longest_s, _least_load(worst)),
                        max(0.0, min(_regular_wait_s(served), served.slo_s * (1.0 - _least_load(worst)))),
                    )
        self.look_at = now + LOOK_S * max(1.0, pairs / EXACT)


def _add_loads(loads: dict[DeviceGroup, list[float]], served: ServedClass) -> None:
    """Add the loads of a class to those of its device groups.

    A load is the part of their capacity that the class needs, as if it used all its devices alike. There is one for
    each pressure level, by the options chosen there, and at last one for the quickest options.
    """
    rate = served.demand.rate.value
    if not rate:
        return
    capacity = [0.0] * (LEVELS + 1)
    for offer in served.offers:
        count = sum([group.count for group in offer.groups])
        throughputs = offer.option_set.throughputs(served.slo_s - _regular_wait_s(served))
        capacity = [total + count * each for total, each in zip(capacity, throughputs, strict=True)]
    mine = [rate / each if each else 0.0 for each in capacity]
    for offer in served.offers:
        for group in offer.groups:
            before = loads.get(group)
            loads[group] = mine if before is None else [sum(each) for each in zip(before, mine, strict=True)]


def _least_load(loads: list[float]) -> float:
    return loads[-1]


def _regular_wait_s(served: ServedClass) -> float:
    """Return about how long queries wait for one of their devices.

    A single device has to finish a batch while the next one forms: half the SLO. The more devices there are, the more
    regularly one becomes free (the square-root law of queues with many servers).
    """
    count = sum([group.count for offer in served.offers for group in offer.groups])
    return served.slo_s / (1.0 + math.sqrt(count))
