"""The discount: by how much less than the sustaining pressure will do. Pure.

The sustaining pressure is computed from the demand, its spread and the profiles, and each of these may be off. Where it
is too high, devices stand idle and queries wait less than the target, although they could have more accurate answers.
So the discount grows while waits are below their target, and shrinks faster above it (integral control). It ends where
a query was refused: what some classes gain in accuracy, others on the same devices may lack in time.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..options import LEVELS
from .demand_spread import own_rate
from .state import RESERVE_S, DeviceGroup, ServedClass

#: growth in a second, for each SLO by which waits are below their target
GROWTH = 0.5
#: how many times as fast the discount shrinks above the target
SHRINKS = 4.0
#: what is left of any pressure: at none, waits would count for nothing
LEAST = 1.0 / LEVELS


class Discount:
    """The discount of each class."""

    def __init__(self) -> None:
        self._discounts: dict[ServedClass, float] = {}

    def adjust(
        self, pressures: Mapping[ServedClass, float], targets_s: Mapping[ServedClass, float], seconds: float, now: float
    ) -> dict[ServedClass, float]:
        """Let discounts follow waits, and return the pressures that are left.

        Of all classes that share devices, the one that waits longest against its target decides.

        Args:
            pressures: sustaining pressures; 0: the class needs none, and does not count.
            targets_s: target waits, of the same classes.
            seconds: between two looks.
        """
        changes = self._changes(pressures, targets_s, seconds, now)
        before, self._discounts = self._discounts, {}
        for served, pressure in pressures.items():
            groups = [group for offer in served.offers for group in offer.groups]
            change = min([changes.get(group, 0.0) for group in groups], default=0.0)
            self._discounts[served] = max(0.0, min(before.get(served, 0.0) + change, pressure - LEAST))
        return {served: pressure - self._discounts[served] for served, pressure in pressures.items()}

    @staticmethod
    def _changes(
        pressures: Mapping[ServedClass, float], targets_s: Mapping[ServedClass, float], seconds: float, now: float
    ) -> dict[DeviceGroup, float]:
        """By how much discounts grow on each device group."""
        waits_s: dict[DeviceGroup, float] = {}
        changes: dict[DeviceGroup, float] = {}
        for served, pressure in pressures.items():
            groups = [group for offer in served.offers for group in offer.groups]
            if now - served.refused_at < RESERVE_S:
                change = -1.0
            elif pressure and own_rate(served):
                for group in groups:
                    if group not in waits_s:
                        waits_s[group] = _wait_s(group, now)
                spare_s = targets_s[served] - min([waits_s[group] for group in groups], default=0.0)
                change = GROWTH * seconds * spare_s / served.slo_s
                change *= SHRINKS if change < 0.0 else 1.0
            else:
                # Without queries a class neither waits nor has anything to gain.
                continue
            for group in groups:
                changes[group] = min(changes.get(group, 1.0), change)
        return changes


def _wait_s(group: DeviceGroup, now: float) -> float:
    """Return how long a query that arrived now would wait for one of these devices."""
    if group.idle:
        return 0.0
    return min([max(device.free_at - now, 0.0) + device.scheduled_s for device in group.devices])
