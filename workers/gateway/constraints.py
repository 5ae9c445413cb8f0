"""Variants that meet a query's constraints, cached until plan or devices change."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from workers.protocol.frames import ExecutorState
from workers.protocol.specs import ApplicationSpec
from workers.v2.query import V2Query

from .catalog import Catalog
from .device_options import alone_s
from .errors import Unavailable
from .executors import Executors
from .in_flight import InFlightQuery

#: different constraints that are remembered while nothing changes
MOST_KEPT = 256


@dataclass(frozen=True, slots=True)
class CapableVariant:
    """A variant that is warm on a device.

    Attributes:
        accuracy: percent, in the application's metric.
        seconds: estimate for the query alone on that device; None: there is none.
    """

    device: str
    id: int
    variant: str
    accuracy: float
    seconds: float | None


def unmet(able: Sequence[CapableVariant], min_accuracy: float | None, latency_s: float | None) -> str | None:
    """Explain why no variant meets both constraints; None: some do."""
    enough = [variant for variant in able if min_accuracy is None or variant.accuracy >= min_accuracy]
    if not enough:
        best = max((variant.accuracy for variant in able), default=None)
        now = "nothing is warm now" if best is None else f"the best available now is {best:g}"
        return f"parameters.min_accuracy: {min_accuracy:g} cannot be met; {now}"
    if any(latency_s is None or variant.seconds is None or variant.seconds <= latency_s for variant in enough):
        return None
    nearest = min(enough, key=lambda variant: variant.seconds)
    nearest_ms = float(f"{nearest.seconds * 1e3:.3g}")
    text = (
        f"parameters.latency_ms: {latency_s * 1e3:g} is too short for every variant that is warm now; the nearest is "
        f"{nearest.variant!r} with an accuracy of {nearest.accuracy:g} in about {nearest_ms:g} ms"
    )
    if min_accuracy is not None:
        fast = [variant for variant in able if variant.seconds is None or variant.seconds <= latency_s]
        if fast:
            other = max(fast, key=lambda variant: variant.accuracy)
            text += f"; within that time the best is {other.variant!r} with {other.accuracy:g}"
    return text


class Constraints:
    def __init__(self, catalog: Catalog, executors: Executors):
        self._catalog = catalog
        self._executors = executors
        self._reported: dict[str, tuple] = {}
        # Until a plan or a report differs.
        self._able = functools.lru_cache(MOST_KEPT)(self._find_able)
        self._permitted = functools.lru_cache(MOST_KEPT)(self._find_permitted)

    def adopt(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._forget()

    def reported(self, device: str, state: ExecutorState) -> None:
        reported = state.warm, state.draining
        if self._reported.get(device) != reported:
            self._reported[device] = reported
            self._forget()

    def lost(self, device: str) -> None:
        self._reported.pop(device, None)
        self._forget()

    def restrict(self, flight: InFlightQuery) -> None:
        """Restrict a query to variants that meet its constraints. Raises Unavailable."""
        query, terms = flight.query, flight.query.terms
        permitted = self._permitted(flight.spec.name, terms.rows, flight.variant, terms.min_accuracy, query.latency_s)
        # Also where all variants meet them by now: a core that was left may have known others.
        flight.query_class = flight.query_class._replace(permitted=permitted)

    def _find_permitted(
        self, name: str, rows: int, variant: str | None, min_accuracy: float | None, latency_s: float | None
    ) -> frozenset[int] | None:
        able = self._able(name, rows)
        named = [option for option in able if variant in (None, option.variant)]
        if not named and variant is not None:
            raise Unavailable(f"version {variant!r}: no device has this variant of {name} warm now")
        why = unmet(named, min_accuracy, latency_s)
        if why is not None:
            raise Unavailable(why)
        known = {(option.id, option.variant, option.accuracy) for option in able}
        for _, resident in self._catalog.residents(name):
            planned = resident.variant
            known.add((planned.id, planned.name, planned.accuracy or 0.0))
        least = -math.inf if min_accuracy is None else min_accuracy
        ids = {id for id, its_name, accuracy in known if variant in (None, its_name) and accuracy >= least}
        return frozenset(ids) if ids < {id for id, _, _ in known} else None

    def never(self, spec: ApplicationSpec, query: V2Query) -> str | None:
        """Explain why even idle devices are too slow for the query; None: they are not."""
        terms = query.terms
        if query.latency_s is not None and (able := self._able(spec.name, terms.rows)):
            return unmet(able, terms.min_accuracy, query.latency_s)
        return None

    def _forget(self) -> None:
        self._able.cache_clear()
        self._permitted.cache_clear()

    def _find_able(self, application: str, rows: int) -> list[CapableVariant]:
        residents = self._catalog.residents(application)
        seconds = {(device, resident.variant.id): alone_s(resident.profile, rows) for device, resident in residents}
        return [
            CapableVariant(device, known.id, known.name, known.accuracy, seconds.get((device, known.id)))
            for device, known in self._executors.warm(application)
        ]
