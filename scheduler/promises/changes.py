"""Imagined changes to a problem. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from registry.errors import InputFault, InvalidInput
from scheduler.allocation.problem import DeviceResources, Problem
from scheduler.words import listed

#: changes of demand: the largest factor, and items/s of one application
MOST_TIMES, MOST_RATE = 100.0, 1e6
#: devices that may be imagined beside those there are
MOST_DEVICES = 1000
#: names that the error of an unknown one lists
MOST_LISTED = 10
#: ms, as for an application
SHORTEST_SLO_MS, LONGEST_SLO_MS = 1.0, 600_000.0
#: what may be chosen for a variant
PINNED, EXCLUDED, FREE = CHOICES = ("pinned", "excluded", "free")


@dataclass(frozen=True)
class Changes:
    """As :class:`scheduler.api.promises.ChangesSerializer` describes them."""

    demand_factor: float = 1.0
    demand: Mapping[str, float] = field(default_factory=dict)
    slo_ms: Mapping[str, float] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    add_devices: Mapping[str, int] = field(default_factory=dict)
    remove_devices: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return self == Changes()

    @property
    def applicable(self) -> bool:
        return bool(self.slo_ms or self.variants or self.cordon)

    def factor(self, application: str, rate: float) -> float:
        """By how much to multiply an application's arrivals, which are ``rate`` items/s."""
        if application not in self.demand:
            return self.demand_factor
        return self.demand[application] / rate if rate > 0 else 1.0


def check(problem: Problem, changes: Changes) -> None:
    faults: list[InputFault] = []

    def known(where: str, names, among) -> None:
        unknown = [name for name in names if name not in among]
        if unknown:
            there = listed(sorted(among), MOST_LISTED) or "none"
            text = f"is not part of the present plan's problem, which has {there}"
            faults.extend(InputFault(f"{where}.{name[:130]}", text) for name in unknown)

    def within(where: str, value: float, low: float, high: float) -> None:
        if not (math.isfinite(value) and low <= value <= high):
            faults.append(InputFault(where, f"must be from {low:g} to {high:g}, and is {value:g}"))

    applications = {a.id for a in problem.applications}
    within("demand_factor", changes.demand_factor, 0.0, MOST_TIMES)
    known("demand", changes.demand, applications)
    for name, rate in changes.demand.items():
        within(f"demand.{name}", rate, 0.0, MOST_RATE)
    known("slo_ms", changes.slo_ms, applications)
    for name, slo_ms in changes.slo_ms.items():
        within(f"slo_ms.{name}", slo_ms, SHORTEST_SLO_MS, LONGEST_SLO_MS)
    known("variants", changes.variants, {variant_name(v) for v in problem.variants})
    for name, choice in changes.variants.items():
        if choice not in CHOICES:
            faults.append(InputFault(f"variants.{name}", f"must be one of {', '.join(CHOICES)}, not {choice!r}"))
    known("add_devices", changes.add_devices, {kind for v in problem.variants for kind in v.profiles})
    for kind, count in changes.add_devices.items():
        within(f"add_devices.{kind}", count, 0, MOST_DEVICES)
    if sum(changes.add_devices.values()) > MOST_DEVICES:
        faults.append(InputFault("add_devices", f"at most {MOST_DEVICES} devices in all"))
    known("remove_devices", changes.remove_devices, {d.id for d in problem.devices})
    known("cordon", changes.cordon, {node_of(d.id) for d in problem.devices})
    if not faults and not _devices(problem, changes):
        faults.append(InputFault("cordon" if changes.cordon else "remove_devices", "leaves no device"))
    if faults:
        raise InvalidInput(faults)


def variant_name(variant) -> str:
    return f"{variant.application}/{variant.label}"


def node_of(device: str) -> str:
    return device.partition("/")[0]


def imagined(
    problem: Problem,
    changes: Changes,
    demand: Mapping[str, float] | None = None,
    expected: Mapping[str, float] | None = None,
) -> Problem:
    """The problem as it would be, with demand and forecast (``expected``) of applications where these are others."""
    demand, expected = demand or {}, expected or {}
    variants = []
    for variant in problem.variants:
        choice = changes.variants.get(variant_name(variant))
        if choice is not None:
            variant = replace(variant, pinned=choice == PINNED, excluded=choice == EXCLUDED)
        variants.append(variant)
    return replace(
        problem,
        devices=_devices(problem, changes),
        applications=tuple(
            replace(
                a,
                slo_s=changes.slo_ms[a.id] / 1000 if a.id in changes.slo_ms else a.slo_s,
                demand=demand.get(a.id, a.demand),
                expected=expected.get(a.id, a.expected),
            )
            for a in problem.applications
        ),
        variants=tuple(variants),
    )


def _devices(problem: Problem, changes: Changes) -> tuple[DeviceResources, ...]:
    gone, nodes = set(changes.remove_devices), set(changes.cordon)
    kept = [d for d in problem.devices if d.id not in gone and node_of(d.id) not in nodes]
    alike = {device.type: device for device in problem.devices}
    for kind, count in sorted(changes.add_devices.items()):
        like = alike.get(kind, DeviceResources("", kind))
        kept += [
            replace(like, id=f"imagined/{kind}-{number + 1}", available=1.0, loaded=frozenset())
            for number in range(int(count))
        ]
    return tuple(sorted(kept, key=lambda device: device.id))
