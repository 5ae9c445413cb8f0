"""Relief: by how much less than the sustaining pressure will do. Pure.

The sustaining pressure is reckoned from the demand, its spread and the profiles, and each of these may be off. Where it
is too high, devices stand idle and queries wait less than the target, although they could have more accurate answers.
So relief grows while waits are below their target, and shrinks faster above it (integral control). It ends where a
query was refused: what one class takes is missing to others on the same devices.
"""

from __future__ import annotations

from collections.abc import Mapping

from .selection import first_device
from .state import RESERVE_S, DeviceGroup, ServedClass

#: growth of relief in a second, for each SLO by which waits are below their target
GROWTH = 0.5
#: how many times as fast it shrinks above the target
SHRINKS = 4.0
#: full pressure
FULL = 1.0


class Relief:
    """The relief of each class, between 0 and its sustaining pressure."""

    def __init__(self) -> None:
        self._relief: dict[ServedClass, float] = {}

    def adjust(
        self, pressures: Mapping[ServedClass, float], targets_s: Mapping[ServedClass, float], seconds: float, now: float
    ) -> dict[ServedClass, float]:
        """Let relief follow waits, and return the sustaining pressures less relief.

        Of all classes that share devices, the one that waits longest against its target decides.

        Args:
            pressures: sustaining pressures; 0: the class needs none, and does not count.
            targets_s: target waits, of the same classes.
            seconds: since the previous call.
        """
        spare: dict[DeviceGroup, float] = {}
        for served, pressure in pressures.items():
            if now - served.refused_at < RESERVE_S:
                its = -FULL / (GROWTH * SHRINKS * seconds)
            elif pressure:
                its = (targets_s[served] - _wait_s(served, now)) / served.slo_s
            else:
                continue
            for offer in served.offers:
                for group in offer.groups:
                    spare[group] = min(spare.get(group, FULL), its)
        before, self._relief = self._relief, {}
        for served, pressure in pressures.items():
            change = min([spare.get(group, 0.0) for offer in served.offers for group in offer.groups], default=0.0)
            change *= GROWTH * seconds * (SHRINKS if change < 0.0 else 1.0)
            self._relief[served] = max(0.0, min(before.get(served, 0.0) + change, pressure))
        return {served: pressure - self._relief[served] for served, pressure in pressures.items()}


def _wait_s(served: ServedClass, now: float) -> float:
    """Return how long a query that came now would wait for a device."""
    waits_s = []
    for offer in served.offers:
        device, soonest_s = first_device(offer, now)
        if device is not None:
            waits_s.append(soonest_s - device.rtt_s)
    return min(waits_s, default=0.0)
