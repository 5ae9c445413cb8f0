"""Sentences for the operator: what each device got and why, what is left out and why, why not more accurate."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from .capacity import Capacity, dedicated_capacity, fits_memory, profile_on
from .groups import usable
from .problem import Allocation, Application, Device, Placement, Problem, Variant

#: Accuracy (points) below the best profiled variant from which a sentence says why.
WORTH_SAYING = 0.05


def reasons(problem: Problem, allocation: Allocation) -> tuple[str, ...]:
    """Sentences in reading order: what is left out, accuracy by application, then device by device."""
    return (*_left_out(problem, allocation), *_accuracy(problem, allocation), *_devices(problem, allocation))


def explained(problem: Problem, allocation: Allocation) -> Allocation:
    """The allocation with its reasons, unless it has some of its own."""
    return allocation if allocation.reasons else replace(allocation, reasons=reasons(problem, allocation))


def _items(rate: float) -> str:
    return f"{rate:.1f}" if rate >= 0.1 or rate == 0 else f"{rate:.2g}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def _best(variant: Variant, application: Application, devices: list[Device]) -> Capacity | None:
    """The variant's largest dedicated capacity on any of the devices."""
    found = []
    for device in devices:
        profile = profile_on(variant, device)
        capacity = dedicated_capacity(profile, application.slo_s) if profile is not None else None
        if capacity is not None:
            found.append(capacity)
    return max(found, key=lambda c: c.rate, default=None)


def _left_out(problem: Problem, allocation: Allocation):
    devices = [d for d in problem.devices if usable(d)]
    for application in problem.applications:
        missing = allocation.left_out.get(application.id, 0.0)
        if missing <= 0:
            continue
        variants = [v for v in problem.variants if v.application == application.id]
        profiled = [v for v in variants if any(v.profiles.get(d.type) for d in devices)]
        what = f"{application.id}: {_items(missing)} of {_items(application.demand)} items/s are left out, because"
        if not devices:
            yield f"{what} no device can host anything now."
        elif not variants:
            yield f"{what} it has no variant."
        elif not profiled:
            yield f"{what} none of its {len(variants)} variants is profiled on the devices that are there."
        elif not any(v.profiles.get(d.type) and fits_memory(v.profiles[d.type], d) for v in profiled for d in devices):
            yield f"{what} none of its variants fits into any device's memory."
        elif all(_best(v, application, devices) is None for v in profiled):
            quickest = min(
                latency
                for v in profiled
                for d in devices
                if d.type in v.profiles
                for _, latency in v.profiles[d.type].longest
            )
            yield (
                f"{what} nothing fits half of its SLO of {_ms(application.slo_s)}: "
                f"its quickest batch takes {_ms(quickest)}."
            )
        else:
            yield f"{what} capacity is exhausted: serving them would leave out items worth more elsewhere."


def _accuracy(problem: Problem, allocation: Allocation):
    devices = [d for d in problem.devices if usable(d)]
    variants = {v.id: v for v in problem.variants}
    for application in problem.applications:
        rates = {}
        for p in allocation.placements:
            if variants[p.variant].application == application.id:
                rates[p.variant] = rates.get(p.variant, 0.0) + p.rate
        total = sum(rates.values())
        if total <= 0:
            continue
        mean = sum(variants[v].accuracy * rate for v, rate in rates.items()) / total
        mine = [v for v in problem.variants if v.application == application.id]
        better = [v for v in mine if v.accuracy > mean + WORTH_SAYING]
        able = [v for v in better if _best(v, application, devices) is not None]
        unable = [v for v in better if v not in able]
        if unable:
            top = max(unable, key=lambda v: v.accuracy)
            if any(profile_on(top, d) for d in devices):
                why = f"its quickest batch takes longer than half of the {_ms(application.slo_s)} SLO"
            elif any(d.type in top.profiles for d in devices):
                why = "it does not fit into memory"
            else:
                why = "it is not profiled on the devices that are there"
            yield f"{application.id}: {top.label} ({top.accuracy:.2f}%) is not used, because {why}."
        if able:
            top = max(able, key=lambda v: v.accuracy)
            rate = _best(top, application, devices).rate
            yield (
                f"{application.id}: {mean:.2f}% on average and not all on {top.label} ({top.accuracy:.2f}%), which "
                f"does "
                f"{_items(rate)} items/s on a whole device at best: {_items(total)} items/s on it would cost "
                f"more served items or more accuracy elsewhere."
            )


def _devices(problem: Problem, allocation: Allocation):
    variants = {v.id: v for v in problem.variants}
    applications = {a.id: a for a in problem.applications}
    by_device: dict[str, list[Placement]] = defaultdict(list)
    for p in allocation.placements:
        by_device[p.device].append(p)
    for device in problem.devices:
        gap_s = allocation.turn_gap_s.get(device.id, 0.0)
        working = [p for p in by_device[device.id] if p.rate > 0 or p.time_share > 0]
        if not by_device[device.id]:
            if not usable(device):
                why = "it may host nothing now"
            elif not any(profile_on(v, device) for v in problem.variants):
                why = "no variant is profiled on its type and fits its memory"
            else:
                why = "nothing with demand that fits half of its SLO runs there"
            yield f"{device.id}: idle, because {why}."
        elif gap_s > 0:
            yield f"{device.id}: shared in turns, at most {_ms(gap_s)} between two turns of a resident:"
        elif len(working) > 1:
            yield f"{device.id}: divides its time among {len(working)} variants of one application:"
        for p in by_device[device.id]:
            variant = variants[p.variant]
            application = applications[variant.application]
            if p not in working:
                yield f"{device.id}: {variant.label} ({application.id}) stands by; {_kept(device, variant)}."
            elif gap_s > 0:
                yield _shared(device, p, variant, application, gap_s)
            else:
                yield _dedicated(device, p, variant, application, alone=len(working) == 1)


def _kept(device: Device, variant: Variant) -> str:
    return "already loaded" if variant.id in device.loaded else "to be loaded"


def _dedicated(device: Device, p: Placement, variant: Variant, application: Application, alone: bool) -> str:
    capacity = dedicated_capacity(variant.profiles[device.type], application.slo_s)
    reserve = f", {1 - device.available:.0%} of its time reserved" if device.available < 1 else ""
    share = device.available if alone else p.time_share
    time = "" if alone else f" in {p.time_share:.0%} of the time"
    return (
        f"{device.id}: {variant.label} ({application.id}) at {_items(p.rate)} of "
        f"{_items(capacity.rate * share)} items/s it can do{time} (batch {p.max_batch} in "
        f"{_ms(capacity.latency_s)}, within half of the {_ms(application.slo_s)} SLO{reserve}); "
        f"{_kept(device, variant)}."
    )


def _shared(device: Device, p: Placement, variant: Variant, application: Application, gap_s: float) -> str:
    return (
        f"{device.id}: {variant.label} ({application.id}) at {_items(p.rate)} of {_items(p.max_batch / gap_s)} items/s "
        f"(up to {p.max_batch} rows a turn, {p.time_share:.0%} of the time; "
        f"SLO {_ms(application.slo_s)}); {_kept(device, variant)}."
    )
