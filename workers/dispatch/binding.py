"""The interface of bindings: which batch runs where, on which variant, and when.

Decisions are pure. A binding holds every query until a batch with it is dispatched. It does no I/O and reads no clock:
``now`` (seconds, any monotonic origin) is an argument, and decisions are return values. The live core and the simulator
drive the same objects; identical calls give identical decisions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from .latency_correction import LearnedLatencies
from .options import OptionSet, ServingOption


class QueryClass(NamedTuple):
    """Queries that may run in the same places.

    Attributes:
        application: its name.
        size: the size class; 0: the one that takes any query.
        permitted: ids of the only variants that may answer; None: all.
    """

    application: str
    size: int = 0
    permitted: frozenset[Hashable] | None = None


class ServiceTerms(NamedTuple):
    """Terms of an application; ``serve_late``: late queries are served, not refused."""

    slo_s: float
    serve_late: bool = False
    sizes: tuple[int, ...] = (0,)


class WaitingQuery(Protocol):
    """A query that waits. Times in seconds on the caller's clock.

    Attributes:
        deadline: when its answer must be back; inf: any time.
        rows: at least 1.
        key: equal for queries that may run in one batch (the shape of their inputs).
        reservation: the binding's own; None at first.
    """

    id: int
    arrived: float
    deadline: float
    rows: int
    key: Hashable
    query_class: QueryClass
    reservation: Any


class Dispatch(Protocol):
    """A batch to send to its device now; ``end``: when its answers are expected."""

    device_name: Hashable
    application_name: str
    option: ServingOption
    queries: list
    rows: int
    dispatched_at: float
    end: float


class Decisions(NamedTuple):
    """Decisions after an event.

    Attributes:
        dispatches: batches to send, in this order.
        refusals: queries that no device can answer in time.
        wake_at: when :meth:`Binding.wake` is due if no other event comes first; inf: never.
    """

    dispatches: Sequence[Dispatch] = ()
    refusals: Sequence[WaitingQuery] = ()
    wake_at: float = math.inf


class Binding(Protocol):
    """Decides which queries run together, where and when.

    Each query of :meth:`arrived` is dispatched or refused once, unless it is withdrawn; a query of :meth:`returned`
    counts as new.
    """

    def configured(self, applications: Mapping[str, ServiceTerms], now: float) -> Decisions:
        """Replace all applications. Waiting queries of others are refused."""

    def offered(self, options: Mapping[Hashable, Mapping[QueryClass, OptionSet]], now: float) -> Decisions:
        """Replace what devices can run.

        All changes of a plan belong in one call: a query that waits for a device which can answer it no longer goes to
        one that now can.

        Args:
            options: by device, and there by query class, those of unrestricted queries (``permitted`` is None). Other
                devices are unchanged.
        """

    def device_changed(
        self, device: Hashable, now: float, up: bool | None = None, busy_until: float | None = None
    ) -> Decisions:
        """Update a device's availability and the end of other work on it.

        Args:
            up: whether the device takes batches; None: unchanged. A new device is down.
            busy_until: when other work on the device ends; None: unchanged.
        """

    def rtt_changed(self, device: Hashable, rtt_s: float) -> None:
        pass

    def learned(self, device: Hashable) -> LearnedLatencies | None:
        pass

    def inherit(self, device: Hashable, learned: LearnedLatencies) -> None:
        """Begin with what another core has learned, unless this one has learned something."""

    def lost(self, device: Hashable, now: float) -> Decisions:
        """Handle a device's loss. Queries to try again arrive by :meth:`returned`."""

    def arrived(self, queries: Sequence[WaitingQuery], now: float) -> Decisions:
        pass

    def probe(self, query: WaitingQuery, now: float) -> Decisions:
        """Dispatch a query to an idle device in order to refresh its estimates.

        The query was just refused. The device must be in time by its profile alone; if there is none, nothing happens.
        Latency estimates may be stale, and never recover without new batches.
        """

    def finished(self, batch: Dispatch, now: float, run_s: float | None = None) -> Decisions:
        """A batch is answered; ``run_s``: None where it is unknown, or it failed."""

    def returned(self, queries: Sequence[WaitingQuery], now: float) -> Decisions:
        pass

    def withdrawn(self, query: WaitingQuery, now: float) -> Decisions:
        pass

    def wake(self, now: float) -> Decisions:
        """The ``wake_at`` of the latest decisions is due. Early calls do no harm."""
