"""Verification of problems and allocations, independent of the strategies' code.

:func:`faults` lists what makes a problem unusable, :func:`violations` the rules that an allocation breaks. The control
loop verifies every plan before it is pushed; tests verify every allocation that they make.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from .problem import Allocation, CandidateVariant, DeviceResources, LatencyProfile, Placement, Problem

#: Relative tolerance: the solver's and rounding.
TOLERANCE = 1e-5
#: (field, least value, whether it must be above that, largest value)
_DEVICE = (
    ("cores", 1, False, math.inf), ("available", 0, False, 1), ("memory_bytes", 0, False, math.inf),
    ("max_resident", 0, False, math.inf), ("cost", 0, True, math.inf),
)  # fmt: skip
_APPLICATION = (
    ("slo_s", 0, True, math.inf), ("demand", 0, False, math.inf), ("weight", 0, True, math.inf), ("floor", 0, False, 1),
)  # fmt: skip


class UnusableProblem(ValueError):
    def __init__(self, faults: list[str]):
        super().__init__("; ".join(faults))
        self.faults = faults


def check(problem: Problem) -> None:
    """Raise :class:`UnusableProblem` for a problem with faults."""
    found = faults(problem)
    if found:
        raise UnusableProblem(found)


def faults(problem: Problem) -> list[str]:
    found: list[str] = []

    def number(value: float, field: str, low: float, low_open: bool, high: float = math.inf) -> None:
        good = isinstance(value, int | float) and math.isfinite(value) and value <= high
        if not good or value < low or (low_open and value == low):
            upper = f" and at most {high:g}" if math.isfinite(high) else ""
            found.append(f"{field}: must be {'above' if low_open else 'at least'} {low:g}{upper}, and is {value!r}")

    for kind, ids in (
        ("devices", [d.id for d in problem.devices]),
        ("applications", [a.id for a in problem.applications]),
        ("variants", [v.id for v in problem.variants]),
    ):
        found += [f"{kind}[{i}].id: must be unique, and appears {n} times" for i, n in Counter(ids).items() if n > 1]
    for what, all_of_them, rules in (
        ("devices", problem.devices, _DEVICE),
        ("applications", problem.applications, _APPLICATION),
    ):
        for one in all_of_them:
            for field, low, low_open, high in rules:
                if (value := getattr(one, field)) is not None:
                    number(value, f"{what}[{one.id}].{field}", low, low_open, high)
    applications = {a.id for a in problem.applications}
    for variant in problem.variants:
        if variant.application not in applications:
            found.append(f"variants[{variant.id}].application: {variant.application!r} is not an application")
        number(variant.accuracy, f"variants[{variant.id}].accuracy", 0, False)
        for kind, points in variant.capacities.items():
            cores = [count for count, _ in points]
            if cores != sorted(set(cores)) or (cores and cores[0] < 1):
                name = f"variants[{variant.id}].capacities[{kind}]"
                found.append(f"{name}: cores must be at least 1 and ascend, and are {cores}")
        for kind, profile in variant.profiles.items():
            name = f"variants[{variant.id}].profiles[{kind}]"
            number(profile.memory_bytes, f"{name}.memory_bytes", 0, False)
            batches = [batch for batch, _ in profile.points]
            if batches != sorted(set(batches)) or (batches and batches[0] < 1):
                found.append(f"{name}.points: batches must be at least 1 and ascend, and are {batches}")
            if profile.slowest and [batch for batch, _ in profile.slowest] != batches:
                found.append(f"{name}.slowest: batches must be those of points, and are {profile.slowest}")
            for batch, latency_s in profile.slowest:
                if not (isinstance(latency_s, float) and 0 < latency_s < math.inf):
                    number(latency_s, f"{name}.slowest[{batch}]", 0, True)
            for batch, latency_s in profile.points:
                # Hundreds of points in every problem: build the name only for faulty ones.
                if not (isinstance(latency_s, float) and 0 < latency_s < math.inf):
                    number(latency_s, f"{name}.points[{batch}]", 0, True)
    number(problem.time_limit_s, "time_limit_s", 0, True)
    number(problem.gap, "gap", 0, False)
    if problem.milp_s is not None:
        number(problem.milp_s, "milp_s", 0, True)
    for name, value, low in _costs(problem):
        number(value, name, low, False)
    return found


def _costs(problem: Problem) -> Iterable[tuple[str, float, float]]:
    costs = problem.costs
    yield from (("costs.accuracy", costs.accuracy, 0), ("costs.core", costs.core, 0), ("costs.load_s", costs.load_s, 0))
    if costs.budget is not None:
        yield "costs.budget", costs.budget, 1
    for variant in problem.variants:
        for kind, points in variant.capacities.items():
            for cores, rate in points:
                yield f"variants[{variant.id}].capacities[{kind}][{cores}]", rate, 0


def violations(problem: Problem, allocation: Allocation) -> list[str]:
    """Every rule that the allocation breaks, one line each; empty: it may be used.

    Rules: placements are of known devices and variants that are not excluded, each variant once a device; what is
    served and left out adds up to the demand, and the rates to what is served; memory and the residents allowed are
    respected. A device without a revisit period is dedicated to one application: its batches take at most SLO / 2,
    and the time that its rates take at those batches (Eq. 5) is at most what is available. On a shared device all
    slices at their largest fit into the revisit period, a query that just missed a slice is in time after the next one,
    rates are within the slices' capacity, and no application has two slices. Standby variants, with no rate and no
    time, count in memory and among the residents only, and must be able to answer within the SLO unless they are
    pinned.
    """
    found: list[str] = []
    devices = {d.id: d for d in problem.devices}
    variants = {v.id: v for v in problem.variants}
    rates = {a.id: 0.0 for a in problem.applications}
    by_device: dict[str, list[Placement]] = {}
    for placement in allocation.placements:
        where = f"{placement.variant} on {placement.device}"
        if placement.device not in devices or placement.variant not in variants:
            found.append(f"{where}: no such device or variant in the problem")
            continue
        if not math.isfinite(placement.rate) or placement.rate < 0:
            found.append(f"{where}: rate {placement.rate} must be at least 0")
        variant = variants[placement.variant]
        if devices[placement.device].type not in variant.profiles:
            found.append(f"{where}: not profiled on {devices[placement.device].type}")
            continue
        rates[variant.application] += placement.rate
        by_device.setdefault(placement.device, []).append(placement)
    found += _totals(problem, allocation, rates)
    for device_id in allocation.revisit_s.keys() - by_device.keys():
        found.append(f"{device_id}: has a revisit period and no resident")
    slo_s = {a.id: a.slo_s for a in problem.applications}
    for device_id, residents in by_device.items():
        device, revisit_s = devices[device_id], allocation.revisit_s.get(device_id, 0.0)
        found += _limits(device, residents, variants)
        found += _slices(device, residents, variants, revisit_s)
        for placement in residents:
            variant = variants[placement.variant]
            profile = variant.profiles[device.type]
            if _works(placement):
                found += _placement(placement, profile, slo_s[variant.application], revisit_s, device.available)
            else:
                found += _standby(placement, profile, math.inf if variant.pinned else slo_s[variant.application])
    return found


def _works(placement: Placement) -> bool:
    return placement.rate > 0 or placement.time_share > 0


def _limits(
    device: DeviceResources, residents: Sequence[Placement], variants: Mapping[str, CandidateVariant]
) -> Iterable[str]:
    memory = sum(variants[p.variant].profiles[device.type].memory_bytes for p in residents)
    if device.memory_bytes is not None and memory > device.memory_bytes:
        yield f"{device.id}: residents take {memory} bytes, the limit is {device.memory_bytes}"
    if device.max_resident is not None and len(residents) > device.max_resident:
        yield f"{device.id}: {len(residents)} residents, the limit is {device.max_resident}"
    for variant, count in Counter(p.variant for p in residents).items():
        if count > 1:
            yield f"{device.id}: {variant} appears {count} times, the limit is 1"
        if variants[variant].excluded:
            yield f"{variant} on {device.id}: is excluded"
    shares = sum(p.time_share for p in residents)
    if shares > device.available * (1 + TOLERANCE):
        yield f"{device.id}: time shares add up to {shares:.6f}, the limit is {device.available:g}"


def _slices(
    device: DeviceResources, residents: Sequence[Placement], variants: Mapping[str, CandidateVariant], revisit_s: float
) -> Iterable[str]:
    working = [p for p in residents if _works(p)]
    hosted = Counter(variants[p.variant].application for p in working)
    if revisit_s > 0:
        slices_s = sum(_latency(variants[p.variant].profiles[device.type].longest, p.max_batch) for p in working)
        left_s = revisit_s * device.available
        if slices_s > left_s * (1 + TOLERANCE):
            yield f"{device.id}: slices take up to {slices_s:.6f} s, the revisit period leaves {left_s:.6f} s"
        for application, count in hosted.items():
            if count > 1:
                yield f"{device.id}: {count} slices of {application}, the limit is 1"
    elif len(hosted) > 1:
        yield f"{device.id}: works for {len(hosted)} applications and has no revisit period"


def _totals(problem: Problem, allocation: Allocation, rates: dict[str, float]) -> Iterable[str]:
    for application in problem.applications:
        name, slack = application.id, TOLERANCE * max(application.demand, 1e-9)
        served, left_out = allocation.served.get(name), allocation.left_out.get(name)
        if served is None or left_out is None:
            yield f"{name}: served and left_out must name every application"
            continue
        if served < -slack or left_out < -slack:
            yield f"{name}: served {served} and left_out {left_out} must be at least 0"
        if abs(served + left_out - application.demand) > slack:
            yield f"{name}: served {served} and left_out {left_out} do not add up to the demand {application.demand}"
        if abs(rates[name] - served) > slack:
            yield f"{name}: rates add up to {rates[name]}, served is {served}"


def _placement(
    p: Placement, profile: LatencyProfile, slo_s: float, revisit_s: float, available: float
) -> Iterable[str]:
    where = f"{p.variant} on {p.device}"
    if not profile.points or not 1 <= p.max_batch <= profile.points[-1][0]:
        yield f"{where}: max_batch {p.max_batch} must be from 1 to the largest profiled batch"
        return
    longest_s = _latency(profile.longest, p.max_batch)
    if revisit_s > 0:
        if (revisit_s + longest_s) > slo_s * (1 + TOLERANCE):
            both = f"revisit period {revisit_s:g} s and a batch of {longest_s:g} s"
            yield f"{where}: {both} exceed the SLO of {slo_s:g} s"
        capacity = p.max_batch / revisit_s
    else:
        if longest_s > slo_s / 2 * (1 + TOLERANCE):
            yield f"{where}: a batch of {longest_s:g} s exceeds half of the SLO of {slo_s:g} s"
        # Each of several variants has its share of the time; the sum is checked above.
        capacity = p.max_batch / _latency(profile.points, p.max_batch) * min(p.time_share, available)
    if p.rate > capacity * (1 + TOLERANCE):
        yield f"{where}: rate {p.rate:g} exceeds its capacity of {capacity:g} items/s"


def _standby(p: Placement, profile: LatencyProfile, slo_s: float) -> Iterable[str]:
    where = f"{p.variant} on {p.device}"
    if not profile.points or not 1 <= p.max_batch <= profile.points[-1][0]:
        yield f"{where}: max_batch {p.max_batch} must be from 1 to the largest profiled batch"
    elif (longest_s := _latency(profile.longest, p.max_batch)) > slo_s * (1 + TOLERANCE):
        yield f"{where}: stands by with a batch of {longest_s:g} s, the SLO is {slo_s:g} s"


def _latency(points: Sequence[tuple[int, float]], rows: int) -> float:
    batches = [batch for batch, _ in points]
    i = min(bisect_left(batches, rows), len(batches) - 1)
    high, high_s = points[i]
    if i == 0 or high <= rows:
        return high_s
    low, low_s = points[i - 1]
    return low_s + (high_s - low_s) * (rows - low) / (high - low)
