"""What to keep in the room that is left on devices: variants by which most is gained where least is covered. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .problem import Device, Problem, Variant

#: points of accuracy that a second of device time is worth when a stand-by is needed: a device that is half booked
PRICE = 50.0
#: a second variant of an application on a device is worth this part of a first one
SECOND = 0.25
#: it must differ from what is there by this factor in speed, or be more accurate
FASTER = 1.2


@dataclass(frozen=True)
class _Spare:
    variant: Variant
    rate: float
    """items/s at the fastest batch within the SLO"""
    memory_bytes: int
    load_s: float
    quick: bool
    """its smallest batch takes at most half of the SLO, so that it can follow another batch"""


def fill(problem: Problem, limited: Sequence[Device], chosen: Mapping[str, list[str]]) -> None:
    """Add variants to ``chosen`` (by device) until the devices are full or nothing helps any more.

    An application is covered by the part of its demand that each of its devices could serve at the most; each next
    resident goes where it covers most in proportion to what is covered already.
    """
    demand = {a.id: max(a.demand, 1e-9) for a in problem.applications}
    spares = _spares(problem, {device.type for device in limited})
    by_id = {kind: {s.variant.id: s for mine in options.values() for s in mine} for kind, options in spares.items()}
    covered = dict.fromkeys(demand, 0.0)
    for device in limited:
        for name, rate in _hosted(by_id[device.type], chosen[device.id]).items():
            covered[name] += min(1.0, rate / demand[name])
    open_devices = list(limited)
    while open_devices:
        still = []
        for device in open_devices:
            best = _best(device, spares[device.type], by_id[device.type], chosen[device.id], covered, demand)
            if best is None:
                continue
            name = best.variant.application
            if name not in _hosted(by_id[device.type], chosen[device.id]):
                covered[name] += min(1.0, best.rate / demand[name])
            chosen[device.id].append(best.variant.id)
            still.append(device)
        open_devices = still


def _spares(problem: Problem, kinds: set[str]) -> dict[str, dict[str, list[_Spare]]]:
    """By device type and application, those worth keeping, most accurate first."""
    slo_s = {application.id: application.slo_s for application in problem.applications}
    found: dict[str, dict[str, list[_Spare]]] = {kind: {} for kind in kinds}
    for variant in problem.variants:
        limit_s = slo_s.get(variant.application)
        for kind, profile in variant.profiles.items():
            if kind not in kinds or limit_s is None or variant.excluded:
                continue
            both = zip(profile.points, profile.longest, strict=True)
            rates = [batch / seconds for (batch, seconds), (_, longest_s) in both if longest_s <= limit_s]
            if rates and profile.longest[0][1] <= limit_s:
                quick = profile.longest[0][1] <= limit_s / 2
                spare = _Spare(variant, max(rates), profile.memory_bytes, profile.load_s, quick)
                found[kind].setdefault(variant.application, []).append(spare)
    for options in found.values():
        for name, mine in options.items():
            mine.sort(key=lambda s: (-s.variant.accuracy, -s.rate))
            useful: list[_Spare] = []
            for spare in mine:
                if not useful or spare.rate > useful[-1].rate:
                    useful.append(spare)
            options[name] = useful
    return found


def _hosted(by_id: Mapping[str, _Spare], here: Sequence[str]) -> dict[str, float]:
    """The highest rate by application."""
    rates: dict[str, float] = {}
    for variant in here:
        spare = by_id.get(variant)
        if spare is not None and spare.quick:
            name = spare.variant.application
            rates[name] = max(rates.get(name, 0.0), spare.rate)
    return rates


def _best(
    device: Device,
    options: Mapping[str, list[_Spare]],
    by_id: Mapping[str, _Spare],
    here: Sequence[str],
    covered: Mapping[str, float],
    demand: Mapping[str, float],
) -> _Spare | None:
    if device.max_resident is not None and len(here) >= device.max_resident:
        return None
    room = device.memory_bytes
    if room is not None:
        room -= sum(by_id[variant].memory_bytes for variant in here if variant in by_id)
    hosted = _hosted(by_id, here)
    accurate = {
        name: max(by_id[v].variant.accuracy for v in here if v in by_id and by_id[v].variant.application == name)
        for name in hosted
    }
    best, most = None, 0.0
    for name, mine in options.items():
        able = [s for s in mine if s.variant.id not in here and (room is None or s.memory_bytes <= room)]
        if name in hosted:
            able = [s for s in able if s.rate > FASTER * hosted[name] or s.variant.accuracy > accurate[name]]
        else:
            able = [s for s in able if s.quick]
        if not able:
            continue
        spare = max(able, key=lambda s: s.variant.accuracy - PRICE / s.rate)
        gain = min(1.0, spare.rate / demand[name]) / (covered[name] + 0.1)
        if name in hosted:
            gain *= SECOND
        if spare.variant.id in device.loaded:
            gain *= 2.0
        if gain > most:
            best, most = spare, gain
    return best
