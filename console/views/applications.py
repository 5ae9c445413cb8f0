"""Applications and their variants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Count, Max, Q
from django.shortcuts import get_object_or_404, render

from console.access import role_in
from console.views.access import page
from registry import trying, usage
from registry.accuracy import normalized_accuracies
from registry.examples import curl, triton
from registry.models import Application, ProfileJob, Variant
from registry.signatures import DATATYPES
from scheduler.control import requested_variants
from scheduler.repairs import listing
from scheduler.repairs.repair import Repair
from scheduler.trail import application_trail
from workers import metrics


@page
def index(request):
    found = Application.objects.annotate(
        variants_total=Count("variants"),
        variants_ready=Count("variants", filter=Q(variants__state=Variant.State.READY)),
        best_accuracy=Max("variants__accuracy"),
    )
    needing: dict[str, list[Repair]] = defaultdict(list)
    for repair in listing.needing(listing.shared(), role_in(request)):
        needing[repair.application].append(repair)
    return render(
        request,
        "console/applications.html",
        {
            "rows": [(application, needing[application.name]) for application in found],
            "datatypes": DATATYPES,
            "late_choices": Application.Late.choices,
            "non_finite_choices": Application.NonFinite.choices,
        },
    )


@page
def detail(request, name: str):
    application = get_object_or_404(Application, name=name)
    variants = sorted(
        application.variants.prefetch_related("profiles__latencies"),
        key=lambda v: (v.accuracy is None, -(v.accuracy or 0), v.name),
    )
    jobs = list(
        ProfileJob.objects.filter(
            variant__application=application, state__in=[ProfileJob.State.QUEUED, ProfileJob.State.RUNNING]
        ).select_related("variant")
    )
    warm = usage.warm_on(variant.pk for variant in variants)
    normalized, requested = normalized_accuracies([application]), requested_variants.current()
    rows = [
        {
            "variant": variant,
            "normalized": normalized.get(variant.pk),
            "loaded_on": warm.get(variant.pk, ()),
            "jobs": [job for job in jobs if job.variant_id == variant.pk],
            "requested": variant.pk in requested,
            "alone": {other.pk for other in variants if _usable(other)} == {variant.pk},
        }
        for variant in variants
    ]
    return render(
        request,
        "console/application.html",
        {
            **_common(application),
            "rows": rows,
            "trail": application_trail(application.name),
            "size_tables": _size_tables(variants, application.sizes),
            "metrics": metrics.names(),
            "late_choices": Application.Late.choices,
            "non_finite_choices": Application.NonFinite.choices,
        },
    )


def _usable(variant: Variant) -> bool:
    return variant.state in Variant.PLANNED and not variant.excluded


def _size_tables(variants: Iterable[Variant], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Latency by batch (rows) and size class (columns), where there are several."""
    found = []
    for variant in variants:
        for profile in variant.profiles.all():
            latencies = {(point.size, point.batch): point for point in profile.latencies.all()}
            smaller = sorted({size for size, _ in latencies if size})
            if not smaller:
                continue
            classes = [*smaller, 0]
            found.append(
                {
                    "variant": variant.name,
                    "device_type": profile.device_type,
                    "columns": [size or max(sizes, default=None) for size in classes],
                    "rows": [
                        {"batch": batch, "cells": [latencies.get((size, batch)) for size in classes]}
                        for batch in sorted({batch for _, batch in latencies})
                    ],
                }
            )
    return found


@page
def upload(request, name: str):
    """From a file to the first answer; ``?variant=NAME`` goes on with an uploaded one."""
    application = get_object_or_404(Application, name=name)
    variants = application.variants.exclude(state=Variant.State.DRAINING)
    chosen = variants.filter(name=request.GET.get("variant", "")).first()
    return render(
        request,
        "console/upload.html",
        {**_common(application), "rows": [{"variant": variant} for variant in variants], "chosen": chosen},
    )


@page
def compare(request, name: str):
    """Variants side by side (``?variants=A,B``) over a range of time."""
    application = get_object_or_404(Application, name=name)
    variants = sorted(application.variants.all(), key=lambda v: (v.accuracy is None, -(v.accuracy or 0), v.name))
    return render(request, "console/compare.html", {"application": application, "variants": variants})


def _common(application: Application) -> dict[str, object]:
    address, authorities = trying.gateway_url(), trying.authorities()
    return {
        "application": application,
        "validation_set": getattr(application, "validation_set", None),
        "max_upload_mb": settings.NEREUS.max_upload_bytes // (1024 * 1024),
        "example": curl(application.name, application.signature, address, authorities),
        "triton": triton(application.name, application.signature, address, authorities),
    }
