"""What loading a variant costs a plan, so that plans do not flap between about equally good ones.

A device that loads stands still. Spread over the time until the next plan that loses load_s / horizon of its time,
worth the price of time, and a part of what devices earn on the whole, for a device that stands still is one less
to take a burst (as InfAdapter's loading cost; Salmani et al., EuroMLSys'23). Even a load that takes no
time costs a little, so that among equal plans the one that moves least wins.
"""

from __future__ import annotations

from .device_options import Menu
from .relaxation import Relaxation

#: Seconds over which a load must pay: about the time to the next plan.
HORIZON_S = 30.0
#: Part of what a device earns on the average that its standing still puts at risk.
AT_RISK = 0.1
#: Points of accuracy (of all the demand) that all loads together may cost beside.
PRICE_OF_ALL_LOADS = 0.01


class Loads:
    """Prices of loads, points/s.

    ``cost_time``: whether any of the variants that may be placed takes time to load.
    """

    def __init__(self, menu: Menu, relaxed: Relaxation):
        demand = sum(a.weight * a.demand for a in menu.applications)
        devices = sum(len(group) for group in menu.groups)
        self._least = PRICE_OF_ALL_LOADS * demand / (devices + len(menu.applications))
        self._second = [(float(price) + AT_RISK * relaxed.points / devices) / HORIZON_S for price in relaxed.prices]
        self._load_s: list[dict[str, float]] = []
        for group in menu.groups:
            kind = group.one.type
            self._load_s.append(
                {
                    variant.id: variant.profiles[kind].load_s
                    for application in menu.applications
                    for variant in menu.variants(application.id)
                    if kind in variant.profiles
                }
            )
        self.cost_time = any(seconds > 0 for mine in self._load_s for seconds in mine.values())

    def price(self, g: int, variant: str) -> float:
        """Of loading the variant on a device of group ``g``; above 0."""
        return self._least + self._second[g] * self._load_s[g].get(variant, 0.0)
