"""Variants that queries request, by name or by a least accuracy.

INFaaS (Romero et al., ATC '21, Sections 3.1 and 4.1) loads an inactive variant that a query needs, the one with the
lowest loading and inference latency where several would do. Here a query does not wait for it: it is refused, and the
next plan has the variant stand by where there is room. Strategies do not know of requests.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from registry import clock
from registry.models import Application, Device, Node, Variant
from scheduler import live
from scheduler.control.requests import request_plan
from workers import log

logger = log.get("requested_variants")

#: by variant: when a query last requested it
KEY = live.key("requested_variants")
#: seconds for which a variant stays requested after the last query
KEPT_S = 600.0
#: seconds within which the same request is not looked up again: that takes several database queries
FRESH_S = 5.0
#: requested variants of an application at a time; the first ones stay, so that many do not unload each other in turn
MOST = 4
#: requests whose last lookup is remembered
MOST_LOOKED_UP = 1000

_looked_up: dict[Request, float] = {}


class Request(NamedTuple):
    """Variants that queries named, and the least accuracy (percent; 0: none) that they asked for."""

    application: str
    named: frozenset[str]
    least: float


def requests_of(second: Mapping[str, Any]) -> list[Request]:
    every = (
        Request(name, frozenset(counts.get("named") or ()), counts.get("least_accuracy") or 0.0)
        for name, counts in second["applications"].items()
    )
    return [request for request in every if request.named or request.least]


def record(requests: Iterable[Request]) -> None:
    new: list[str] = []
    for request in requests:
        if _due(request):
            new += _record(*request)
    if new:
        logger.info("requested_variants", variants=new)
        request_plan("change", f"queries request {', '.join(new)}")


def current() -> set[int]:
    """Return the requested variants, by id; none while Redis is away."""
    try:
        return _read()
    except RedisError:
        return set()


def _due(request: Request) -> bool:
    now = clock.steady()
    if now - _looked_up.get(request, -math.inf) < FRESH_S:
        return False
    if len(_looked_up) >= MOST_LOOKED_UP:
        _looked_up.clear()
    _looked_up[request] = now
    return True


def _record(name: str, named: Collection[str], least: float) -> list[str]:
    application = Application.objects.filter(name=name, state=Application.State.ACTIVE).first()
    if application is None:
        return []
    devices = Device.objects.filter(node__state=Node.State.APPROVED, state=Device.State.UP)
    kinds, warm = set(), set()
    for kind, variants in devices.values_list("type", "warm"):
        kinds.add(kind)
        warm.update(variants)
    candidates = application.variants.filter(state__in=Variant.PLANNED, excluded=False, accuracy__isnull=False)
    seconds = {
        variant: _seconds(variant, kinds)
        for variant in candidates.select_related("application").prefetch_related("profiles__latencies").order_by("pk")
    }
    able = [variant for variant, took in seconds.items() if math.isfinite(took)]
    found = [variant for variant in able if variant.name in named]
    accurate = [variant for variant in able if variant.accuracy >= least] if least > 0 else []
    if accurate:
        found.append(min(accurate, key=lambda variant: (variant.pk not in warm, seconds[variant])))
    mine = {variant.pk for variant in seconds} & _read()
    new = []
    for variant in found:
        if variant.pk not in mine and len(mine) >= MOST:
            continue
        live.client().hset(KEY, variant.pk, clock.stamp())
        if variant.pk not in mine:
            mine.add(variant.pk)
            new.append(f"{name}/{variant.name}")
    return new


def _seconds(variant: Variant, kinds: Iterable[str]) -> float:
    """Seconds to load it and answer an item where that is quickest; infinite: nowhere within the SLO."""
    found = math.inf
    for profile in variant.profiles.all():
        points = sorted(profile.latencies.all(), key=lambda point: point.batch)
        if profile.device_type not in kinds or profile.blocked or not points:
            continue
        if points[0].p95_ms <= variant.application.slo_ms:
            found = min(found, profile.load_s + points[0].p50_ms / 1000)
    return found


def _read() -> set[int]:
    return set(map(int, live.fresh(KEY, KEPT_S)))
