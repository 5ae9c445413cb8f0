"""Why an allocation serves no more, and not more accurately; with remedies."""

from __future__ import annotations

from dataclasses import replace

from .capacity import Capacity, dedicated_capacity, fits_memory, profile_on
from .groups import usable
from .problem import Allocation, ApplicationDemand, CandidateVariant, DeviceResources, Problem

#: points of accuracy below the best profiled variant from which the reason is explained
ACCURACY_LOSS = 0.05


def reasons(problem: Problem, allocation: Allocation) -> tuple[str, ...]:
    return (*_left_out(problem, allocation), *_accuracy(problem, allocation), *_idle(problem, allocation))


def explained(problem: Problem, allocation: Allocation) -> Allocation:
    return allocation if allocation.reasons else replace(allocation, reasons=reasons(problem, allocation))


def _items(rate: float) -> str:
    return f"{rate:.1f}" if rate >= 0.1 or rate == 0 else f"{rate:.2g}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def _best(variant: CandidateVariant, application: ApplicationDemand, devices: list[DeviceResources]) -> Capacity | None:
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
        yield (
            f"{application.id}: {_items(missing)} of {_items(application.demand)} items/s are left out: "
            f"{_why_left_out(problem, application, devices)}"
        )


def _why_left_out(problem: Problem, application: ApplicationDemand, devices: list[DeviceResources]) -> str:
    variants = [v for v in problem.variants if v.application == application.id]
    profiles = [(v.profiles[d.type], d) for v in variants for d in devices if d.type in v.profiles]
    if not devices:
        return "no device can run anything now. Check that the nodes are connected and their devices are up."
    if not variants:
        return "it has no variant to plan with. Upload one."
    if not profiles:
        return f"none of its {len(variants)} variants is profiled on the present device types. Profile one there."
    if not any(fits_memory(profile, device) for profile, device in profiles):
        return "no device has the memory for any of its variants. Upload a smaller one, or add a larger device."
    if all(_best(v, application, devices) is None for v in variants):
        fastest = min(latency for profile, _ in profiles for _, latency in profile.longest)
        return (
            f"its fastest batch takes {_ms(fastest)}, and plans allow half of the {_ms(application.slo_s)} SLO. "
            "Raise the SLO, or upload a faster variant."
        )
    return "all devices are full. Add devices, or raise its weight to serve it before other applications."


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
        better = [v for v in mine if v.accuracy > mean + ACCURACY_LOSS]
        able = [v for v in better if _best(v, application, devices) is not None]
        unable = [v for v in better if v not in able]
        if unable:
            top = max(unable, key=lambda v: v.accuracy)
            if any(profile_on(top, d) for d in devices):
                why = f"its fastest batch exceeds half of the {_ms(application.slo_s)} SLO. Raise the SLO to use it"
            elif any(d.type in top.profiles for d in devices):
                why = "no device has the memory for it"
            else:
                why = "it is not profiled on the present device types. Profile it to use it"
            yield f"{application.id}: {top.label} ({top.accuracy:.2f}%) is not used: {why}."
        if able:
            top = max(able, key=lambda v: v.accuracy)
            yield (
                f"{application.id}: {mean:.2f}% accuracy on average. The devices have too little time to serve all "
                f"{_items(total)} items/s with {top.label} ({top.accuracy:.2f}%), which serves at most "
                f"{_items(_best(top, application, devices).rate)} items/s on one device. Add devices to raise accuracy."
            )


def _idle(problem: Problem, allocation: Allocation):
    busy = {p.device for p in allocation.placements}
    for device in problem.devices:
        if device.id in busy:
            continue
        if not usable(device):
            why = "all of its time is reserved, or it may hold no variants"
        elif not any(profile_on(v, device) for v in problem.variants):
            why = "no variant is profiled on its type and fits into its memory"
        else:
            why = "no application with demand has a variant that is fast enough here and worth running"
        yield f"{device.id}: idle, because {why}."
