"""Wire format of plans, made from allocations, and of applications and variants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from registry import models as registry
from registry import signatures
from registry.accuracy import normalized_accuracies
from scheduler.allocation.problem import Allocation, Problem
from scheduler.control.demand import bands
from scheduler.control.standby import standby_variants
from workers.protocol import shapes, specs


def application_spec(
    application: registry.Application, profiled: Collection[int] | None = None
) -> specs.ApplicationSpec:
    """An application's spec for the data plane.

    Args:
        profiled: the size classes that its variants' profiles distinguish; None: all, since profiles are to be made.
    """
    sizes = tuple(application.sizes)
    return specs.ApplicationSpec(
        name=application.name,
        slo_s=application.slo_ms / 1000,
        signature=signatures.spec(application.signature, application.batch, max(sizes, default=0)),
        late=application.late,
        non_finite=application.non_finite,
        weight=application.weight,
        padding={name: float(value) for name, value in application.padding.items()},
        sizes=sizes if profiled is None else shapes.distinct_sizes(sizes, profiled),
    )


def points_of(variants: Iterable[int]) -> dict[int, tuple[specs.ProfilePoint, ...]]:
    """Profiles of variants (ids) with all size classes, by profile id: one query, no model instances."""
    columns = ("profile", "batch", "p50_ms", "p95_ms", "mean_ms", "samples", "size")
    rows = registry.ProfileLatency.objects.filter(profile__variant__in=variants)
    found: dict[int, list[specs.ProfilePoint]] = {}
    for profile, batch, p50_ms, p95_ms, mean_ms, samples, size in rows.values_list(*columns):
        point = specs.ProfilePoint(batch, p50_ms / 1000, p95_ms / 1000, mean_ms / 1000, samples, size)
        found.setdefault(profile, []).append(point)
    return {profile: tuple(points) for profile, points in found.items()}


def variant_spec(variant: registry.Variant, normalized: float | None) -> specs.VariantSpec:
    return specs.VariantSpec(
        id=variant.pk,
        name=variant.name,
        application=variant.application.name,
        digest=variant.digest,
        size_bytes=variant.size_bytes,
        accuracy=variant.accuracy,
        accuracy_normalized=normalized,
        alone=bool(variant.why_alone),
        rungs=variant.inspection.get("rungs", {}),
        rows=bytes(variant.trial_rows),
    )


def wire_plan(
    version: int,
    problem: Problem,
    allocation: Allocation,
    devices: list[registry.Device],
    stack: str,
    requested: Collection[int] = (),
) -> specs.PlanSpec:
    """The plan for gateways and nodes. Devices without residents are in it, so that they unload."""
    standby = standby_variants(problem, allocation, requested)
    ids = {int(p.variant) for p in allocation.placements} | {int(v) for some in standby.values() for v in some}
    ids |= {int(variant) for planned in allocation.policies for variant in planned.variants}
    variants = registry.Variant.objects.select_related("application").prefetch_related("profiles")
    # A variant that was deleted while the solver ran is left out; its deletion asks for the next plan.
    by_id = {str(variant.pk): variant for variant in variants.filter(pk__in=ids)}
    normalized = normalized_accuracies({variant.application for variant in by_id.values()})
    points = points_of(ids)
    device_plans, rates = [], {}
    for device in devices:
        here = [p for p in allocation.placements if p.device == device.ref and p.variant in by_id]
        for placement in here:
            key = (by_id[placement.variant].application.name, device.ref)
            # A strategy's numbers may be numpy scalars, which the wire cannot encode.
            rates[key] = rates.get(key, 0.0) + float(placement.rate)
        others = [by_id[variant] for variant in standby.get(device.ref, ()) if variant in by_id]
        device_plans.append(
            specs.DevicePlan(
                device=device.ref,
                endpoint=device.endpoint,
                node=device.node.name,
                address=device.address,
                residents=tuple(
                    _resident(by_id[p.variant], normalized, points, device.type, p.max_batch, p.rate, p.time_share)
                    for p in here
                ),
                revisit_s=float(allocation.revisit_s.get(device.ref, 0.0)),
                standby_residents=tuple(_resident(v, normalized, points, device.type, 1, 0.0, 0.0) for v in others),
            )
        )
    return specs.PlanSpec(
        version=version,
        devices=tuple(device_plans),
        routes=tuple(_routes(rates)),
        bands=bands({application.id: application.demand for application in problem.applications}),
        stack=stack,
        policies=tuple(_policies(allocation, by_id.keys())),
    )


def _policies(allocation: Allocation, known: Collection[str]) -> Iterator[specs.DevicePolicies]:
    for planned in allocation.policies:
        # Places are those among all variants: without a deleted one, they would name others.
        if all(variant in known for variant in planned.variants):
            yield specs.DevicePolicies(
                planned.application,
                planned.devices,
                tuple(int(variant) for variant in planned.variants),
                tuple(specs.LoadPolicySpec(float(one.load), one.steps) for one in planned.policies),
            )


def _resident(
    variant: registry.Variant,
    normalized: dict[int, float],
    points: dict[int, tuple[specs.ProfilePoint, ...]],
    device_type: str,
    max_batch: int,
    rate: float,
    share: float,
) -> specs.Resident:
    profile = next(p for p in variant.profiles.all() if p.device_type == device_type)
    measured = points.get(profile.pk, ())
    return specs.Resident(
        variant=variant_spec(variant, normalized[variant.pk]),
        max_batch=int(max_batch),
        rate=float(rate),
        time_share=float(share),
        profile=shapes.of_class(measured, 0),
        memory_bytes=profile.memory_bytes,
        smaller=tuple(point for point in measured if point.size),
    )


def _routes(rates: dict[tuple[str, str], float]) -> list[specs.Route]:
    """Routes with shares by rate; where an application's rates are all zero, even shares."""
    total: dict[str, float] = {}
    hosts: dict[str, int] = {}
    for (application, _), rate in rates.items():
        total[application] = total.get(application, 0.0) + rate
        hosts[application] = hosts.get(application, 0) + 1
    routes = []
    for (application, device), rate in sorted(rates.items()):
        share = rate / total[application] if total[application] > 0 else 1.0 / hosts[application]
        if share > 0:
            routes.append(specs.Route(application, device, share))
    return routes
