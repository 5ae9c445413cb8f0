"""Queries, variants, and devices that run dispatched batches and load variants. No clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from workers.dispatch.binding import Dispatch, QueryClass
from workers.dispatch.latency import LatencyModel


class SimulatedQuery:
    """``deadline``: when its answer must be back, seconds; ``application``: an index."""

    __slots__ = ("application", "arrived", "deadline", "id", "key", "query_class", "reservation", "rows")

    def __init__(
        self, id: int, application: int, arrived: float, deadline: float, query_class: QueryClass | None = None
    ):
        self.id = id
        self.application = application
        self.arrived = arrived
        self.deadline = deadline
        self.query_class = query_class
        self.rows = 1
        #: traces know no shapes
        self.key = None
        #: the binding's
        self.reservation: Any = None


class SimulatedVariant(NamedTuple):
    """A variant as one device type runs it."""

    id: str
    application: str
    accuracy: float
    latency: LatencyModel


class SimulatedDevice:
    """A device that runs dispatched batches in order, and loads variants in between.

    Args:
        max_resident: variants that may be loaded at once; None: any number.

    Attributes:
        loaded: variants that are ready to run.
        loads: variants still to be loaded, in this order; ``loading``: the one under way.
        overdue_at: from then on a load goes before any batch.
        running: the batch under way, which takes ``run_s``. ``free_at``: when it or the load under way ends.
        batches: dispatched and not yet begun. ``begun``: loads that were.
    """

    def __init__(self, name: str, kind: str, max_resident: int | None):
        self.name = name
        self.kind = kind
        self.max_resident = max_resident
        self.loaded: dict[str, None] = {}
        self.loads: list[str] = []
        self.loading: str | None = None
        self.begun = 0
        self.planned: frozenset[str] = frozenset()
        self.overdue_at = math.inf
        self.running: Dispatch | None = None
        self.run_s = self.free_at = 0.0
        self.batches: list[Dispatch] = []

    @property
    def idle(self) -> bool:
        return self.running is None and self.loading is None

    def warm(self) -> list[str]:
        """Variants that are loaded, or will be when the load under way ends."""
        return [*self.loaded, *([] if self.loading is None else [self.loading])]


class PublishedDevice(SimulatedDevice):
    """A device that loads all that is planned there before it serves again.

    A variant that was loaded stays until its place is needed; the one planned longest ago goes first.
    """

    offer: tuple | None = None

    @property
    def ready(self) -> bool:
        """Nothing is being loaded or about to be."""
        return self.loading is None and not self.loads

    def plan(self, wanted: Sequence[str], standby: Sequence[str] = ()) -> None:
        """What to load is then in ``loads``; ``standby``: faster variants, as room allows."""
        for variant in (*standby, *wanted):
            if variant in self.loaded:
                # Last in the order of eviction.
                del self.loaded[variant]
                self.loaded[variant] = None
        missing = [v for v in wanted if v not in self.loaded and v != self.loading]
        coming = len(missing) + (self.loading in wanted)
        room = self.max_resident
        if room is not None:
            for variant in list(self.loaded):
                if len(self.loaded) + coming > room and variant not in wanted:
                    del self.loaded[variant]
        spare = [v for v in standby if v not in self.loaded and v != self.loading]
        if room is not None:
            spare = spare[: max(0, room - len(self.loaded) - coming)]
        self.planned = frozenset(wanted)
        self.loads = missing + spare

    def load_next(self) -> bool:
        """Begin the next load; False when there is none. :meth:`load_ended` must follow."""
        self.loading = self.loads.pop(0) if self.loads else None
        self.begun += self.loading is not None
        return self.loading is not None

    def load_ended(self) -> None:
        """Where a newer plan has no place for the variant, it is unloaded at once."""
        variant, self.loading = self.loading, None
        due = len(self.planned - self.loaded.keys() - {variant})
        limit = self.max_resident
        if variant in self.planned or limit is None or len(self.loaded) + due < limit:
            self.loaded[variant] = None


class LateDevice(SimulatedDevice):
    """A device that goes on serving until a load may begin.

    A variant that was loaded stays until its place is needed; what the plan does not name goes first.

    Attributes:
        wanted: what should be resident, most important first; ``planned``: what of it the plan counts on.
        blocked: variants that may not run under the present plan.
        due: since when each variant to be loaded has been wanted.
    """

    def __init__(self, name: str, kind: str, max_resident: int | None):
        super().__init__(name, kind, max_resident)
        self.wanted: dict[str, None] = {}
        self.blocked: frozenset[str] = frozenset()
        self.due: dict[str, float] = {}

    def usable(self) -> list[str]:
        return [variant for variant in self.loaded if variant not in self.blocked]

    def plan(self, wanted: Sequence[str]) -> None:
        """Take over what should be resident, most important first, as far as it may be."""
        self.wanted = dict.fromkeys(list(dict.fromkeys(wanted))[: self.max_resident])
        self.loads = [variant for variant in self.wanted if variant not in self.loaded and variant != self.loading]

    def begin(self, variant: str) -> None:
        """Begin a load of those due; evict at once what must go for it."""
        self.loads.remove(variant)
        self.loading = variant
        self.begun += 1
        if self.max_resident is not None:
            for variant in list(self.loaded):
                if len(self.loaded) < self.max_resident:
                    break
                if variant not in self.wanted:
                    del self.loaded[variant]

    def load_ended(self) -> None:
        variant, self.loading = self.loading, None
        if self.max_resident is None or len(self.loaded) < self.max_resident:
            self.loaded[variant] = None
