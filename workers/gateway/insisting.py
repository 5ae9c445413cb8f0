"""Which variants and devices meet a query's constraints, remembered for as long as nothing changes."""

from __future__ import annotations

import math

from workers.protocol import v2
from workers.protocol.frames import ExecutorState
from workers.protocol.specs import ApplicationSpec

from . import wishes
from .catalog import Catalog
from .errors import Unavailable
from .executors import Executors
from .menus import alone_s

#: different wishes that are remembered while nothing changes
WISHES = 256


class Insisting:
    """Knows devices by what they tell, and variants by the catalog."""

    def __init__(self, catalog: Catalog, executors: Executors):
        self._catalog = catalog
        self._executors = executors
        #: by application and rows, what is warm; by what queries insist on as well, the devices for it; and what each
        #: device told last, on which both depend
        self._warm: dict[tuple[str, int], list[wishes.Able]] = {}
        self._chosen: dict[tuple, tuple[frozenset[str], frozenset[int] | None]] = {}
        self._told: dict[str, tuple] = {}

    def adopt(self, catalog: Catalog) -> None:
        """Another catalog counts from now on."""
        self._catalog = catalog
        self._forget()

    def heard(self, device: str, state: ExecutorState) -> None:
        """A device told its state."""
        told = state.warm, state.draining
        if self._told.get(device) != told:
            self._told[device] = told
            self._forget()

    def lost(self, device: str) -> None:
        """A device is gone."""
        self._told.pop(device, None)
        self._forget()

    def permitted(
        self, spec: ApplicationSpec, query: v2.Query, variant: str | None
    ) -> tuple[frozenset[str], frozenset[int] | None]:
        """Devices that can meet the query's constraints now, and the ids of the variants that may answer it (None:
        all); ``variant``: the only one that may, or None.

        Raises:
            Unavailable: there is none now; the text names the nearest that could.
        """
        terms = query.terms
        able = self.able(spec.name, terms.rows)
        if variant is not None and not any(one.variant == variant for one in able):
            raise Unavailable(f"version {variant!r}: no device has this variant of {spec.name} warm now")
        key = spec.name, terms.rows, variant, terms.min_accuracy, query.latency_s
        found = self._chosen.get(key)
        if found is None:
            named = [one for one in able if variant is None or one.variant == variant]
            try:
                fitting = wishes.fitting(named, terms.min_accuracy, query.latency_s)
            except wishes.Unmet as error:
                raise Unavailable(str(error)) from None
            known = {(one.id, one.variant, one.accuracy) for one in able}
            known |= {
                (r.variant.id, r.variant.name, r.variant.accuracy or 0.0) for _, r in self._catalog.residents(spec.name)
            }
            least = terms.min_accuracy if terms.min_accuracy is not None else -math.inf
            ids = {id for id, name, accuracy in known if variant in (None, name) and accuracy >= least}
            whole = len(ids) == len({id for id, _, _ in known})
            found = frozenset(one.device for one in fitting), None if whole else frozenset(ids)
            if len(self._chosen) >= WISHES:
                self._chosen.clear()
            self._chosen[key] = found
        return found

    def never(self, spec: ApplicationSpec, query: v2.Query) -> str | None:
        """Why the query's latency could not be met by idle devices either; None: it could, or it named none."""
        terms = query.terms
        if query.latency_s is not None and (able := self.able(spec.name, terms.rows)):
            try:
                wishes.fitting(able, terms.min_accuracy, query.latency_s)
            except wishes.Unmet as error:
                return str(error)
        return None

    def max_rows(self, application: str, device: str, variant: int) -> int:
        """Rows that one run of the variant may take there, by the plan; 1 where the plan does not say."""
        residents = self._catalog.residents(application)
        return max([one.max_batch for at, one in residents if at == device and one.variant.id == variant], default=1)

    def _forget(self) -> None:
        self._warm.clear()
        self._chosen.clear()

    def able(self, application: str, rows: int) -> list[wishes.Able]:
        """What is warm for an application, and how long so many rows would take."""
        able = self._warm.get((application, rows))
        if able is None:
            residents = self._catalog.residents(application)
            seconds = {(device, one.variant.id): alone_s(one.profile, rows) for device, one in residents}
            able = [
                wishes.Able(device, known.id, known.name, known.accuracy, seconds.get((device, known.id)))
                for device, known in self._executors.warm(application)
            ]
            if len(self._warm) >= WISHES:
                self._warm.clear()
            self._warm[application, rows] = able
        return able
