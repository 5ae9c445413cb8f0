"""The interface of bindings: pure decisions about which batch runs on which variant, on which device, and when.

A binding holds every query until a batch with it is dispatched. It does no I/O, never sleeps and reads no clock:
``now`` (seconds, any monotonic origin) is handed in, and what it decides comes back as a return value. The live core
and the simulator drive the same objects; identical calls give identical decisions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from .options import Menu, Option


class QueryClass(NamedTuple):
    """What decides where a query may run.

    Attributes:
        application: its name.
        size: its size class; 0: the one that any query may belong to.
        permitted: ids of the only variants that may answer it; None: all.
    """

    application: str
    size: int = 0
    permitted: frozenset[Hashable] | None = None


class Terms(NamedTuple):
    """What a binding must know of an application: its SLO in seconds, whether late queries are served, and its size
    classes."""

    slo_s: float
    serve_late: bool = False
    sizes: tuple[int, ...] = (0,)


class Query(Protocol):
    """A query that waits. Times in seconds on the caller's clock.

    Attributes:
        deadline: when its answer must be back; inf: any time.
        rows: at least 1.
        key: what it must have in common with others to run with them (the shape of its inputs).
        query_class: decides where it may run.
        booking: the binding's own; None at first.
    """

    id: int
    arrived: float
    deadline: float
    rows: int
    key: Hashable
    query_class: QueryClass
    booking: Any


class Dispatch(Protocol):
    """A batch to be sent to its device now.

    Attributes:
        option: the variant to run, and how many rows one run may take.
        rows: of all its queries.
        granted_at: when it was decided.
        end: when its answers are expected.
    """

    device_name: Hashable
    application_name: str
    option: Option
    queries: list
    rows: int
    granted_at: float
    end: float


class Decisions(NamedTuple):
    """What follows from an event.

    Attributes:
        dispatches: batches to send, in this order.
        refusals: queries that no device can answer in time.
        wake_at: when :meth:`Binding.wake` is due if nothing happens before; inf: not at all.
    """

    dispatches: Sequence[Dispatch] = ()
    refusals: Sequence[Query] = ()
    wake_at: float = math.inf


class Binding(Protocol):
    """Each query of :meth:`arrived` ends up in one dispatched batch or is refused once, unless it is withdrawn, or
    comes back by :meth:`returned` and begins anew."""

    def configured(self, applications: Mapping[str, Terms], now: float) -> Decisions:
        """These are all applications. Queries that wait for others are refused."""

    def offered(self, device: Hashable, menus: Mapping[QueryClass, Menu], now: float) -> Decisions:
        """What the device can run from now on, by class of unrestricted queries (``permitted`` is None)."""

    def device_changed(
        self, device: Hashable, now: float, up: bool | None = None, busy_until: float | None = None
    ) -> Decisions:
        """Whether the device takes batches, and until when others' work holds it; None: as before. A new device is
        down."""

    def rtt_changed(self, device: Hashable, rtt_s: float) -> None:
        """How many seconds the way to the device and back takes."""

    def lost(self, device: Hashable, now: float) -> Decisions:
        """The device is gone with all that was dispatched to it. The caller brings back by :meth:`returned` the queries
        that are to be tried again."""

    def arrived(self, queries: Sequence[Query], now: float) -> Decisions:
        """Queries that arrived together."""

    def probe(self, query: Query, now: float) -> Decisions:
        """Dispatch a query that was just refused to an idle device all the same, if its profile alone has it in time:
        estimates may be stale, and never recover without new batches. No dispatch: there is no such device."""

    def finished(self, batch: Dispatch, now: float, run_s: float | None = None) -> Decisions:
        """A dispatched batch is answered. ``run_s``: seconds that its run held the device; None: not known, or it
        failed."""

    def returned(self, queries: Sequence[Query], now: float) -> Decisions:
        """Queries of dispatched batches that their device declined, or that were lost with it."""

    def withdrawn(self, query: Query, now: float) -> Decisions:
        """Forget a query that waits; nothing happens if it does not."""

    def wake(self, now: float) -> Decisions:
        """The time that the latest decisions named has come. It may be called early, or in vain."""

    def pressure(self, application: str, now: float) -> float:
        """The part of its SLO for which an application's devices are busy (0 to 1); 1 where it has none."""
