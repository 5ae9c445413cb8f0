"""Accuracy and throughput of an application by device type, and consequences of another SLO."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from registry.accuracy import normalized_accuracies
from registry.models import Application, Variant
from scheduler import trail
from scheduler.allocation.capacity import dedicated_capacity
from scheduler.allocation.problem import LatencyProfile
from scheduler.models import Plan


@dataclass(frozen=True)
class FrontierPoint:
    """As :class:`scheduler.api.frontier.FrontierPointSerializer` describes it."""

    variant: str
    device_type: str
    accuracy: float
    rate: float
    batch: int | None
    fastest_ms: float
    dominated: bool = False
    share: float = 0.0


def frontier(application: Application, slo_ms: float | None = None) -> list[FrontierPoint]:
    """Each profiled variant that plans may use, by type, the most accurate first."""
    variants = application.variants.filter(state__in=Variant.PLANNED, excluded=False)
    normalized = normalized_accuracies([application])
    shares = _shares(application.name)
    found = []
    for variant in variants.select_related("application").prefetch_related("profiles__latencies"):
        for profile in variant.profiles.all():
            points = tuple(
                (point.batch, point.p95_ms)
                for point in profile.latencies.all()
                if not point.size and (point.batch == 1 or not variant.why_alone)
            )
            if not points or profile.blocked:
                continue
            # Per millisecond.
            best = dedicated_capacity(LatencyProfile(points), application.slo_ms if slo_ms is None else slo_ms)
            found.append(
                FrontierPoint(
                    variant=variant.name,
                    device_type=profile.device_type,
                    accuracy=normalized.get(variant.pk) or 0.0,
                    rate=1000 * best.rate if best else 0.0,
                    batch=best.batch if best else None,
                    fastest_ms=min(p95 for _, p95 in points),
                    share=shares.get((str(variant.pk), profile.device_type), 0.0),
                )
            )
    marked = [replace(one, dominated=any(_dominates(other, one) for other in found)) for one in found]
    return sorted(marked, key=lambda one: (one.device_type, -one.accuracy, -one.rate, one.variant))


def _dominates(other: FrontierPoint, one: FrontierPoint) -> bool:
    if other.device_type != one.device_type:
        return False
    no_worse = other.accuracy >= one.accuracy and other.rate >= one.rate
    return no_worse and (other.accuracy > one.accuracy or other.rate > one.rate)


def _shares(application: str) -> dict[tuple[str, str], float]:
    plan = Plan.objects.defer("problem", "wire").first()
    if plan is None:
        return {}
    planned, rates = trail.side(plan), Counter()
    for (device, variant), rate in planned.rates.items():
        if planned.owners.get(variant) == application:
            rates[variant, planned.types.get(device, "")] += rate
    total = sum(rates.values())
    return {key: rate / total for key, rate in rates.items()} if total else {}


def consequences(application: Application, slo_ms: float) -> list[str]:
    """The consequences of another SLO, in sentences."""
    before, after = frontier(application), frontier(application, slo_ms)
    if not before:
        return ["No variant has been profiled yet: nothing can be said."]
    found = []
    now = {(one.variant, one.device_type): one for one in after}
    for one in before:
        other = now.get((one.variant, one.device_type))
        where = f"{one.variant} on {one.device_type}"
        if other is None:
            continue
        if one.rate and not other.rate:
            used = f"; it answers {one.share:.0%} of the planned queries now" if one.share else ""
            found.append(
                f"{where} can be used no more: its fastest batch takes {one.fastest_ms:.1f} ms, over half of "
                f"{slo_ms:g} ms{used}."
            )
        elif other.rate and not one.rate:
            found.append(f"{where} can be used, at up to {other.rate:.1f} items/s a device.")
        elif one.rate and abs(other.rate / one.rate - 1) >= 0.01:
            verb = "more" if other.rate > one.rate else "fewer"
            found.append(
                f"{where} serves {abs(other.rate / one.rate - 1):.0%} {verb}: {one.rate:.1f} to {other.rate:.1f} "
                "items/s a device."
            )
    if not any(one.rate for one in after):
        found.insert(0, f"No variant could be used within {slo_ms:g} ms: all queries would be refused.")
    return found or ["No variant gains or loses a batch size: plans stay as they are."]
