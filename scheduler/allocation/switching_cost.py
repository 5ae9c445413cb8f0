"""Switching cost: the price of loading a variant, against flapping plans.

A device serves nothing while it loads. Spread over the time until the next plan, a load takes load_s / horizon of the
device's time, valued at the price of time plus a part of what a device earns on average, since a loading device cannot
absorb a burst. Costs of loads add up (InfAdapter, Salmani et al., EuroMLSys'23, counts the longest one). A load that
takes no time costs a little, so that of equal plans the one with the fewest loads wins.
"""

from __future__ import annotations

from .group_options import GroupOptions
from .relaxation import Relaxation

#: Seconds over which a load must pay off: about the time to the next plan.
HORIZON_S = 30.0
#: Part of a device's average earnings that a load puts at risk.
AT_RISK = 0.1
#: Points of accuracy (over all demand) that all loads together may cost in addition.
PRICE_OF_ALL_LOADS = 0.01


class SwitchingCosts:
    """Costs of loading variants, points/s."""

    def __init__(self, options: GroupOptions, relaxed: Relaxation):
        demand = sum(a.weight * a.demand for a in options.applications)
        devices = sum(len(group) for group in options.groups)
        self._least = PRICE_OF_ALL_LOADS * demand / (devices + len(options.applications))
        self._second = [(float(price) + AT_RISK * relaxed.points / devices) / HORIZON_S for price in relaxed.prices]
        variants = [v for application in options.applications for v in options.variants(application.id)]
        self._load_s = [
            {v.id: v.profiles[kind].load_s for v in variants if kind in v.profiles}
            for kind in (group.one.type for group in options.groups)
        ]
        self.loads_take_time = any(seconds > 0 for mine in self._load_s for seconds in mine.values())

    def cost(self, g: int, variant: str) -> float:
        return self._least + self._second[g] * self._load_s[g].get(variant, 0.0)
