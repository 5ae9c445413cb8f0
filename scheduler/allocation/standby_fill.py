"""Standby fill: variants to keep loaded in devices' remaining memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .problem import CandidateVariant, DeviceResources, Problem

#: least points of accuracy for a second of device time when a standby variant is needed: as on a half busy device
TIME_PRICE = 50.0
#: value of an application's second variant on a device, as a part of the first one's
SECOND = 0.25
#: coverage beyond which an application gets no more variants: this many devices could each serve all of its demand.
#: More would make plans grow with devices times applications
ENOUGH = 50.0
#: a second variant must be faster than the first by this factor, or more accurate
FASTER = 1.2


@dataclass(frozen=True)
class _Standby:
    variant: CandidateVariant
    rate: float
    """items/s at the fastest batch within the SLO"""
    memory_bytes: int
    load_s: float
    quick: bool
    """its smallest batch takes at most half of the SLO, so that it can follow another batch"""


def fill_with_standby(problem: Problem, chosen: Mapping[str, list[str]], prices: Mapping[str, float]) -> None:
    """Add variants to ``chosen``, by device, until devices are full or none adds coverage.

    An application's coverage is the sum over its devices of the part of its demand that each could serve. Each step
    adds the variant that raises coverage most, relative to the coverage there is. ``prices``: points of accuracy for a
    second of device time, by device type.
    """
    demand = {a.id: max(a.demand, 1e-9) for a in problem.applications}
    standbys = _standbys(problem, {device.type for device in problem.devices})
    by_id = {kind: {s.variant.id: s for mine in options.values() for s in mine} for kind, options in standbys.items()}
    covered = dict.fromkeys(demand, 0.0)
    open_devices = []
    for device in problem.devices:
        price = max(TIME_PRICE, prices.get(device.type, 0.0))
        filling = _Filling(device, standbys[device.type], by_id[device.type], chosen[device.id], price)
        for name, rate in filling.rates.items():
            covered[name] += min(1.0, rate / demand[name])
        open_devices.append(filling)
    while open_devices:
        still = []
        for filling in open_devices:
            best = filling.best(covered, demand)
            if best is None:
                continue
            name = best.variant.application
            if name not in filling.rates:
                covered[name] += min(1.0, best.rate / demand[name])
            filling.add(best)
            still.append(filling)
        open_devices = still


def _standbys(problem: Problem, kinds: set[str]) -> dict[str, dict[str, list[_Standby]]]:
    slo_s = {application.id: application.slo_s for application in problem.applications}
    found: dict[str, dict[str, list[_Standby]]] = {kind: {} for kind in kinds}
    for variant in problem.variants:
        limit_s = slo_s.get(variant.application)
        for kind, profile in variant.profiles.items():
            if kind not in kinds or limit_s is None or variant.excluded:
                continue
            both = zip(profile.points, profile.longest, strict=True)
            rates = [batch / seconds for (batch, seconds), (_, longest_s) in both if longest_s <= limit_s]
            if rates and profile.longest[0][1] <= limit_s:
                quick = profile.longest[0][1] <= limit_s / 2
                standby = _Standby(variant, max(rates), profile.memory_bytes, profile.load_s, quick)
                found[kind].setdefault(variant.application, []).append(standby)
    for options in found.values():
        for name, mine in options.items():
            mine.sort(key=lambda s: (-s.variant.accuracy, -s.rate))
            useful: list[_Standby] = []
            for standby in mine:
                if not useful or standby.rate > useful[-1].rate:
                    useful.append(standby)
            options[name] = useful
    return found


class _Filling:
    def __init__(
        self,
        device: DeviceResources,
        options: Mapping[str, list[_Standby]],
        by_id: Mapping[str, _Standby],
        here: list[str],
        price: float,
    ) -> None:
        self._device, self._options, self._here, self._price = device, options, here, price
        known = [by_id[variant] for variant in here if variant in by_id]
        self._free_bytes = device.memory_bytes
        if self._free_bytes is not None:
            self._free_bytes -= sum(standby.memory_bytes for standby in known)
        self.rates: dict[str, float] = {}
        self._accurate: dict[str, float] = {}
        for standby in known:
            self._count(standby)
        # The best choice for an application here changes only with its own residents and with the memory that is left.
        self._candidates = {name: self._candidate(name) for name in options}

    def _count(self, standby: _Standby) -> None:
        name = standby.variant.application
        if standby.quick:
            self.rates[name] = max(self.rates.get(name, 0.0), standby.rate)
        self._accurate[name] = max(self._accurate.get(name, 0.0), standby.variant.accuracy)

    def add(self, standby: _Standby) -> None:
        self._here.append(standby.variant.id)
        if self._free_bytes is not None:
            self._free_bytes -= standby.memory_bytes
        self._count(standby)
        name = standby.variant.application
        self._candidates[name] = self._candidate(name)

    def _candidate(self, name: str) -> _Standby | None:
        free_bytes = self._free_bytes
        able = [
            s
            for s in self._options[name]
            if s.variant.id not in self._here and (free_bytes is None or s.memory_bytes <= free_bytes)
        ]
        if name in self.rates:
            fast, accurate = FASTER * self.rates[name], self._accurate[name]
            able = [s for s in able if s.rate > fast or s.variant.accuracy > accurate]
        else:
            able = [s for s in able if s.quick]
        return max(able, key=lambda s: s.variant.accuracy - self._price / s.rate, default=None)

    def best(self, covered: Mapping[str, float], demand: Mapping[str, float]) -> _Standby | None:
        device = self._device
        if device.max_resident is not None and len(self._here) >= device.max_resident:
            return None
        best, most = None, 0.0
        for name, standby in self._candidates.items():
            if standby is None or covered[name] >= ENOUGH:
                continue
            if self._free_bytes is not None and standby.memory_bytes > self._free_bytes:
                standby = self._candidates[name] = self._candidate(name)
                if standby is None:
                    continue
            gain = min(1.0, standby.rate / demand[name]) / (covered[name] + 0.1)
            if name in self.rates:
                gain *= SECOND
            if standby.variant.id in device.loaded:
                gain *= 2.0
            if gain > most:
                best, most = standby, gain
        return best
