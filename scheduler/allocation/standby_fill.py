"""Standby fill: variants to keep loaded in devices' remaining memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .problem import CandidateVariant, DeviceResources, Problem

#: points of accuracy for a second of device time when a standby variant is needed: as on a half busy device
TIME_PRICE = 50.0
#: value of an application's second variant on a device, as a part of the first one's
SECOND = 0.25
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


def fill_with_standby(problem: Problem, limited: Sequence[DeviceResources], chosen: Mapping[str, list[str]]) -> None:
    """Add variants to ``chosen`` (by device) until the devices are full or no variant adds coverage.

    An application's coverage is the sum over its devices of the part of its demand that each could serve. Each step
    adds the variant that raises coverage most, relative to the coverage there is.
    """
    demand = {a.id: max(a.demand, 1e-9) for a in problem.applications}
    standbys = _standbys(problem, {device.type for device in limited})
    by_id = {kind: {s.variant.id: s for mine in options.values() for s in mine} for kind, options in standbys.items()}
    covered = dict.fromkeys(demand, 0.0)
    for device in limited:
        for name, rate in _rates_here(by_id[device.type], chosen[device.id]).items():
            covered[name] += min(1.0, rate / demand[name])
    open_devices = list(limited)
    while open_devices:
        still = []
        for device in open_devices:
            best = _best(device, standbys[device.type], by_id[device.type], chosen[device.id], covered, demand)
            if best is None:
                continue
            name = best.variant.application
            if name not in _rates_here(by_id[device.type], chosen[device.id]):
                covered[name] += min(1.0, best.rate / demand[name])
            chosen[device.id].append(best.variant.id)
            still.append(device)
        open_devices = still


def _standbys(problem: Problem, kinds: set[str]) -> dict[str, dict[str, list[_Standby]]]:
    """Standby candidates by device type and application, most accurate first, none dominated."""
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


def _rates_here(by_id: Mapping[str, _Standby], here: Sequence[str]) -> dict[str, float]:
    """The highest rate (items/s) of the variants here, by application."""
    rates: dict[str, float] = {}
    for variant in here:
        standby = by_id.get(variant)
        if standby is not None and standby.quick:
            name = standby.variant.application
            rates[name] = max(rates.get(name, 0.0), standby.rate)
    return rates


def _best(
    device: DeviceResources,
    options: Mapping[str, list[_Standby]],
    by_id: Mapping[str, _Standby],
    here: Sequence[str],
    covered: Mapping[str, float],
    demand: Mapping[str, float],
) -> _Standby | None:
    if device.max_resident is not None and len(here) >= device.max_resident:
        return None
    free_bytes = device.memory_bytes
    if free_bytes is not None:
        free_bytes -= sum(by_id[variant].memory_bytes for variant in here if variant in by_id)
    rates_here = _rates_here(by_id, here)
    accurate = {
        name: max(by_id[v].variant.accuracy for v in here if v in by_id and by_id[v].variant.application == name)
        for name in rates_here
    }
    best, most = None, 0.0
    for name, mine in options.items():
        able = [s for s in mine if s.variant.id not in here and (free_bytes is None or s.memory_bytes <= free_bytes)]
        if name in rates_here:
            able = [s for s in able if s.rate > FASTER * rates_here[name] or s.variant.accuracy > accurate[name]]
        else:
            able = [s for s in able if s.quick]
        if not able:
            continue
        standby = max(able, key=lambda s: s.variant.accuracy - TIME_PRICE / s.rate)
        gain = min(1.0, standby.rate / demand[name]) / (covered[name] + 0.1)
        if name in rates_here:
            gain *= SECOND
        if standby.variant.id in device.loaded:
            gain *= 2.0
        if gain > most:
            best, most = standby, gain
    return best
