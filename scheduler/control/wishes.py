"""Variants that queries ask for, and that plans keep loaded.

They ask by name or by a least accuracy. INFaaS (Romero et al., ATC '21, Sections 3.1 and 4.1) loads an inactive variant
that a query needs, the one with the lowest loading and inference latency where several would do. Here a query does not
wait for it: it is refused, and the next plan loads the variant beside what it places, where there is room. A wish holds
for :data:`KEPT_S` after the last query that had it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from redis.exceptions import RedisError

from registry import clock
from registry.models import Application, Device, Variant
from scheduler import live
from scheduler.control.requests import request_plan
from workers import log

logger = log.get("wishes")

#: by variant: when a query last asked for it
KEY = live.key("wishes")
#: seconds for which a variant stays wanted, and within which a wish is not looked at again
KEPT_S, FRESH_S = 600.0, 5.0
#: variants of an application that are kept because of wishes, the latest
MOST = 2
#: seconds between two plans because of wishes
PAUSE_S = 5


def asked(second: Mapping[str, Any]) -> None:
    """Remember what queries of a gateway's second asked for.

    A plan is requested for what nobody asked for before: loaded or not, queries find what plans place.
    """
    wishes = {
        name: (set(counts.get("named") or ()), counts.get("least_accuracy") or 0.0)
        for name, counts in second["applications"].items()
        if counts.get("named") or counts.get("least_accuracy")
    }
    if not wishes:
        return
    known = _read()
    warm = {pk for some in Device.objects.filter(state=Device.State.UP).values_list("warm", flat=True) for pk in some}
    new = []
    for application in Application.objects.filter(name__in=wishes, state=Application.State.ACTIVE):
        named, least = wishes[application.name]
        variants = list(
            application.variants.filter(state__in=Variant.PLANNED, excluded=False, accuracy__isnull=False)
            .prefetch_related("profiles__latencies")
            .order_by("pk")
        )
        for variant in _wanted(variants, named, least, warm | known.keys()):
            if clock.age(known.get(variant.pk)) > FRESH_S:
                live.client().hset(KEY, variant.pk, clock.stamp())
                if variant.pk not in known:
                    new.append(f"{application.name}/{variant.name}")
    if new:
        logger.info("wishes", variants=new)
        request_plan("change", f"queries ask for {', '.join(new)}", at_most_every_s=PAUSE_S)


def variants() -> set[int]:
    """Return the variants that are wanted, by id; none while Redis is away.

    Of each application these are the latest :data:`MOST`.
    """
    try:
        known = _read()
    except RedisError:
        return set()
    counts: dict[int, int] = {}
    found = set()
    owners = dict(Variant.objects.filter(pk__in=known).values_list("pk", "application"))
    for pk in sorted(owners, key=lambda pk: clock.age(known[pk])):
        counts[owners[pk]] = counts.get(owners[pk], 0) + 1
        if counts[owners[pk]] <= MOST:
            found.add(pk)
    return found


def _wanted(variants: Iterable[Variant], named: set[str], least: float, there: Iterable[int]) -> list[Variant]:
    """The variants that queries asked for.

    Args:
        least: accuracy; of several that have it, one that is there already is meant, else the quickest.
        there: loaded, or wanted before.
    """
    found = [variant for variant in variants if variant.name in named]
    if least > 0:
        able = [variant for variant in variants if variant.accuracy >= least]
        enough = [variant for variant in able if variant.pk in there] or able
        if enough:
            found.append(min(enough, key=_seconds))
    return found


def _seconds(variant: Variant) -> float:
    """Seconds to load the variant and to answer one item.

    They are those of the device type where that is quickest.
    """
    return min(
        (
            profile.load_s + min(point.p50_ms for point in profile.latencies.all()) / 1000
            for profile in variant.profiles.all()
            if profile.latencies.all()
        ),
        default=float("inf"),
    )


def _read() -> dict[int, str]:
    """Stamps by variant; those that are over are deleted."""
    found, over = {}, []
    for pk, at in live.client().hgetall(KEY).items():
        if clock.age(at) < KEPT_S:
            found[int(pk)] = at
        else:
            over.append(pk)
    if over:
        live.client().hdel(KEY, *over)
    return found
