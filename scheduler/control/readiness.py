"""When a variant may be called ready: once gateways answer for its application.

A plan that has been made is not yet followed: devices load, and gateways learn of it from them. So it is gateways that
say what they answer, each second. Once ready, a variant stays so: where it can run now is another question.
"""

from __future__ import annotations

from registry import services
from registry.models import Gateway, Variant
from scheduler import telemetry


def reported() -> None:
    """A gateway's second has been recorded; make ready what waited for it."""
    waiting = set(Variant.objects.filter(state=Variant.State.LOADING).values_list("application__name", flat=True))
    if not waiting:
        return
    connected = [gateway.name for gateway in Gateway.objects.all() if gateway.connected]
    for application in sorted(waiting & telemetry.serving(connected)):
        services.answers(application)
