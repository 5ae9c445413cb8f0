"""From the database to a :class:`~scheduler.allocation.problem.Problem`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from django.conf import settings
from django.db.models import Q

from registry import clock, reach
from registry import models as registry
from registry.accuracy import normalized_accuracies
from registry.profiling import OPEN
from scheduler.allocation.problem import ApplicationDemand, CandidateVariant, DeviceResources, Problem
from scheduler.control import sizes
from scheduler.control.wire import points_of
from scheduler.presence import silence_counts
from workers.protocol.specs import ProfilePoint

#: a device whose node has been silent for longer is planned without
SILENT_S = 10


def available_devices() -> list[registry.Device]:
    """Devices for plans: up or about to be free, reached, on nodes that are not silent or cordoned."""
    devices = registry.Device.objects.filter(
        state__in=[registry.Device.State.UP, registry.Device.State.DRAINING],
        node__state=registry.Node.State.APPROVED,
        node__cordoned_at=None,
    ).exclude(phase__in=registry.Device.LEFT_OUT)
    if silence_counts():
        now = clock.steady()
        devices = devices.filter(node__seen_s__gte=now - SILENT_S, node__seen_s__lte=now + clock.AHEAD_S)
    return reach.reachable(devices.select_related("node"), reach.approved_gateways())


def idle_devices() -> list[registry.Device]:
    """Devices that plans name with nothing to run: to unload, or for cores to connect with."""
    left_out = Q(node__cordoned_at__isnull=False) | Q(unreached_since__isnull=False)
    left_out |= Q(phase__in=registry.Device.LEFT_OUT)
    approved = registry.Device.objects.filter(node__state=registry.Node.State.APPROVED)
    return list(approved.filter(left_out).select_related("node"))


def _candidate(
    variant: registry.Variant, accuracy: float, mix: Mapping[int, float], points: Mapping[int, Sequence[ProfilePoint]]
) -> CandidateVariant:
    profiles = {}
    for profile in variant.profiles.all():
        if not profile.blocked:
            # Plans count on single rows of variants whose queries run alone.
            counted = [one for one in points.get(profile.pk, ()) if one.batch == 1 or not variant.why_alone]
            profiles[profile.device_type] = sizes.profile(counted, mix, profile.memory_bytes, profile.load_s)
    return CandidateVariant(
        id=str(variant.pk),
        name=variant.name,
        application=variant.application.name,
        accuracy=accuracy,
        profiles={kind: profile for kind, profile in profiles.items() if profile.points},
        pinned=variant.pinned,
        excluded=variant.excluded,
    )


def assemble(
    demand: Mapping[str, float],
    devices: list[registry.Device],
    mixes: Mapping[str, Mapping[int, float]] | None = None,
    expected: Mapping[str, float] | None = None,
) -> Problem:
    """Return the problem as of now.

    Variants are named by id, applications by name, devices by ref. Only active applications and profiled variants take
    part, these not on device types where they are blocked.

    Args:
        demand: items/s by application, margins not included.
        mixes: shares of it by size class, for applications where that is known.
        expected: the forecast by application without its margin.
    """
    applications = list(registry.Application.objects.filter(state=registry.Application.State.ACTIVE))
    variants = _variants(applications, mixes or {})
    with_variants = {variant.application for variant in variants if variant.profiles}
    return Problem(
        devices=_devices(devices, {variant.id for variant in variants}),
        applications=tuple(
            ApplicationDemand(
                id=application.name,
                slo_s=application.slo_ms / 1000,
                demand=demand.get(application.name, 0.0),
                weight=application.weight,
                floor=application.floor,
                expected=(expected or {}).get(application.name),
            )
            for application in applications
            if application.name in with_variants
        ),
        variants=variants,
        time_limit_s=settings.NEREUS.solve_s,
        milp_s=settings.NEREUS.solve_s / 3,
    )


def _variants(
    applications: list[registry.Application], mixes: Mapping[str, Mapping[int, float]]
) -> tuple[CandidateVariant, ...]:
    planned = registry.Variant.objects.filter(
        state__in=registry.Variant.PLANNED, application__in=applications, accuracy__isnull=False
    )
    ready = list(planned.select_related("application").prefetch_related("profiles").order_by("id"))
    points = points_of(variant.pk for variant in ready)
    normalized = normalized_accuracies(applications)
    return tuple(
        _candidate(variant, normalized[variant.pk], mixes.get(variant.application.name, sizes.ANY), points)
        for variant in ready
    )


def _devices(devices: list[registry.Device], variants: Collection[str]) -> tuple[DeviceResources, ...]:
    """Device types with open profile jobs keep the profiling share of their time free."""
    jobs = registry.ProfileJob.objects.filter(state__in=OPEN)
    being_profiled = set(jobs.values_list("device_type", flat=True))
    reserved, costs = 1.0 - settings.NEREUS.profile_share, settings.NEREUS.device_costs
    return tuple(
        DeviceResources(
            id=device.ref,
            type=device.type,
            memory_bytes=device.memory_bytes or None,
            available=reserved if device.type in being_profiled else 1.0,
            loaded=frozenset(str(pk) for pk in device.warm if str(pk) in variants),
            cost=costs.get(device.type, costs.get(device.kind, 1.0)),
            cores=max(1, len(device.cores)),
        )
        for device in sorted(devices, key=lambda device: device.ref)
    )
