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
from scheduler.allocation.blocking import blocking
from scheduler.allocation.problem import Allocation, Problem
from scheduler.control.requests import request_plan
from scheduler.control.standby import MEMORY_SHARE
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
    """What queries of an application requested.

    Attributes:
        named: variants, by name.
        least: accuracy, percent; 0: none.
    """

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
    """Remember requests, and have a plan made for variants that are new among them."""
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
        return set(_read())
    except RedisError:
        return set()


def stand_by(
    problem: Problem, allocation: Allocation, standby: Mapping[str, list[str]], requested: Collection[int]
) -> dict[str, list[str]]:
    """Return ``standby`` with requested variants that no device would have loaded.

    Each comes last on a device that has room: one that has it loaded, else one with few variants.

    Args:
        standby: variants by device, beside the placed ones.
    """
    if not requested:
        return dict(standby)
    found = {device.id: list(standby.get(device.id, ())) for device in problem.devices}
    loaded = {device.id: set(found[device.id]) for device in problem.devices}
    for placement in allocation.placements:
        loaded[placement.device].add(placement.variant)
    blocked, profiles = blocking(problem, allocation), {v.id: v.profiles for v in problem.variants}
    for variant in problem.variants:
        if int(variant.id) not in requested or variant.excluded:
            continue
        if any(variant.id in here for here in loaded.values()):
            continue
        able = []
        for device in problem.devices:
            here = loaded[device.id]
            if device.type not in variant.profiles or variant.id in blocked[device.id]:
                continue
            if device.max_resident is not None and len(here) >= device.max_resident:
                continue
            needed = sum([profiles[id][device.type].memory_bytes for id in (*here, variant.id)])
            if device.memory_bytes is None or needed <= MEMORY_SHARE * device.memory_bytes:
                able.append((variant.id not in device.loaded, len(here), device.id))
        if able:
            ref = min(able)[2]
            found[ref].append(variant.id)
            loaded[ref].add(variant.id)
    return {ref: variants for ref, variants in found.items() if variants}


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
    known = _read()
    mine = {variant.pk for variant in seconds} & known.keys()
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
    """Seconds to load the variant and to answer one item.

    They are those of the device type where that is quickest, and infinite where none answers within the SLO.
    """
    found = math.inf
    for profile in variant.profiles.all():
        points = sorted(profile.latencies.all(), key=lambda point: point.batch)
        if profile.device_type not in kinds or profile.blocked or not points:
            continue
        if points[0].p95_ms <= variant.application.slo_ms:
            found = min(found, profile.load_s + points[0].p50_ms / 1000)
    return found


def _read() -> dict[int, str]:
    found, over = {}, []
    for pk, at in live.client().hgetall(KEY).items():
        if clock.age(at) < KEPT_S:
            found[int(pk)] = at
        else:
            over.append(pk)
    if over:
        live.client().hdel(KEY, *over)
    return found
