"""Which device gets a query: pure, single-threaded, no I/O. Times in seconds on the caller's clock, counts in rows.

The gateway and the simulator run the same objects. The caller tells the router of every query sent and, exactly once,
of how it ended; what it knows of a device's queue is that (fresh, its own queries only) and what the device's executor
reports now and then (all gateways' queries).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from workers.batching.latency import LatencyModel


class QueryRouter(Protocol):
    """What every way of routing offers; :class:`~.routing.least_completion.Router` looks at queues."""

    def set_routes(self, routes: Mapping[str, Sequence[tuple[str, float]]]) -> None:
        """A new plan's routes: application -> (device, share) pairs; keeps what is known of queues."""

    def pick(
        self,
        application: str,
        now: float,
        budget_s: float,
        rows: int = 1,
        exclude: Collection[str] = (),
        allowed: Collection[str] | None = None,
    ) -> str | None:
        """The device for a query, or None if there is none.

        ``budget_s``: time left. ``exclude``: devices that were tried already. ``allowed``: the only ones that will do;
        a frozenset that is passed again costs least. Does not count the query: :meth:`sent` does.
        """

    def sent(self, device: str, application: str, rows: int, now: float) -> None:
        """A query went to ``device``; :meth:`done` follows exactly once."""

    def done(
        self,
        device: str,
        application: str,
        rows: int,
        now: float,
        served: bool,
        queue_s: float = 0.0,
        run_s: float = 0.0,
        batch_rows: int = 0,
    ) -> None:
        """A query that was sent is answered (``served``), refused, cancelled or lost."""

    def state(self, device: str, queued: Mapping[str, int], busy_s: float, draining: bool, now: float) -> None:
        """An executor's report: rows that wait by application, and the time left of the running batch."""

    def service(self, device: str, application: str, latency: LatencyModel, max_batch: int) -> None:
        """What the plan says of the device's service of an application."""

    def down(self, device: str) -> None:
        """The device cannot be reached."""

    def up(self, device: str) -> None:
        """The device can be reached."""
