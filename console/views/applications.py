"""Applications and their variants."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import Count, Max, Q
from django.http.request import validate_host
from django.shortcuts import get_object_or_404, render

from console.curves import curves, size_tables
from console.example import curl
from console.views.access import page
from registry.accuracy import normalized_accuracies
from registry.models import Application, Gateway, ProfileJob, Variant
from registry.signatures import DATATYPES
from scheduler.instances.states import instances
from workers import metrics, tls


@page
def index(request):
    """All applications and the form for a new one."""
    found = Application.objects.annotate(
        variants_total=Count("variants"),
        variants_ready=Count("variants", filter=Q(variants__state=Variant.State.READY)),
        best_accuracy=Max("variants__accuracy"),
    )
    return render(
        request,
        "console/applications.html",
        {
            "applications": found,
            "datatypes": DATATYPES,
            "late_choices": Application.Late.choices,
        },
    )


@page
def detail(request, name: str):
    """One application: live figures, variants, uploads, latency curves, settings."""
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
    running = [instance for instance in instances(variants) if instance.device]
    normalized = normalized_accuracies([application])
    rows = [
        {
            "variant": variant,
            "normalized": normalized.get(variant.pk),
            "instances": [instance for instance in running if instance.variant.pk == variant.pk],
            "jobs": [job for job in jobs if job.variant_id == variant.pk],
        }
        for variant in variants
    ]
    return render(
        request,
        "console/application.html",
        {
            "application": application,
            "validation_set": getattr(application, "validation_set", None),
            "rows": rows,
            "curves": curves(variants, application.slo_ms),
            "size_tables": size_tables(variants, application.sizes),
            "max_upload_mb": settings.NEREUS.max_upload_bytes // (1024 * 1024),
            "metrics": metrics.names(),
            "late_choices": Application.Late.choices,
            "example": curl(name, application.signature, _gateway_url(), _authorities()),
        },
    )


def _authorities() -> str:
    """The file that clients of an own certificate trust."""
    own = settings.NEREUS.tls_used and settings.NEREUS.tls_cert is None
    return str(tls.trust_file(settings.NEREUS)) if own else ""


def _gateway_url() -> str:
    """Where a client would reach a gateway: an approved one that is connected, else this appliance's own.

    A gateway names its address itself: it becomes an example, which operators run with a key in it, only where it is on
    this box or on a host of ``NEREUS_ALLOWED_HOSTS``.
    """
    for gateway in Gateway.objects.filter(state=Gateway.State.APPROVED).exclude(channel="").exclude(address=""):
        url = gateway.address if "://" in gateway.address else f"http://{gateway.address}"
        try:
            host, scheme = urlsplit(url).hostname, urlsplit(url).scheme
        except ValueError:
            continue
        if scheme in ("http", "https") and host and validate_host(host, settings.ALLOWED_HOSTS):
            return url
    return settings.NEREUS.http.url
