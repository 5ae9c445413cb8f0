"""Readiness of variants: ready once all gateways answer for the application.

A stored plan is not adopted yet: devices load first, and gateways follow them. So gateways report each second which
applications they answer. A ready variant stays ready, wherever it can run later.
"""

from __future__ import annotations

from registry import services
from registry.models import Gateway, Variant
from scheduler import telemetry


def reported() -> None:
    waiting = set(Variant.objects.filter(state=Variant.State.LOADING).values_list("application__name", flat=True))
    if not waiting:
        return
    connected = [gateway.name for gateway in Gateway.objects.all() if gateway.connected]
    for application in sorted(waiting & telemetry.serving(connected)):
        services.answers(application)
