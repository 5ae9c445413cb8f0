"""Which device gets a query: pure, single-threaded, no I/O. Times in seconds on the caller's clock, counts in rows.

The gateway and the simulator run the same objects. The caller tells the router of every query sent and, exactly once,
of how it ended; what it knows of a device's queue is that (fresh, its own queries only) and what the device's executor
reports now and then (all gateways' queries).
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Protocol

from workers.batching.latency import LatencyModel


class QueryRouter(Protocol):
    """What every way of routing offers; :class:`Router` follows the plan's shares."""

    def set_routes(self, routes: Mapping[str, Sequence[tuple[str, float]]]) -> None:
        """A new plan's routes: application -> (device, share) pairs; keeps what is known of queues."""

    def pick(
        self,
        application: str,
        now: float,
        budget_s: float,
        rows: int = 1,
        exclude: Container[str] = (),
        allowed: Container[str] | None = None,
    ) -> str | None:
        """The device for a query, or None if there is none."""

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


class _Lane:
    """One application's queue on one device, as known here."""

    __slots__ = ("_batch_s", "_latency", "full_s", "max_batch", "others", "others_at", "outstanding")

    def __init__(self) -> None:
        self.outstanding = 0
        self.others = 0
        self.others_at = 0.0
        self.max_batch = 0
        self.full_s = 0.0
        self._latency: LatencyModel | None = None
        self._batch_s: list[float] = []

    def serve(self, latency: LatencyModel, max_batch: int) -> None:
        self.max_batch = max_batch
        self.full_s = latency.seconds(max_batch)
        self._latency = latency
        self._batch_s = [latency.seconds(rows) for rows in range(max_batch)]

    def expected_s(self, batch_rows: int) -> float:
        """Seconds that a batch of so many rows should take; 0 when unknown."""
        return self._latency.seconds(batch_rows) if self._latency is not None else 0.0

    def work_s(self, rows: int) -> float:
        """Seconds of device time for ``rows`` rows, in full batches and a rest."""
        if rows < self.max_batch:
            return self._batch_s[rows]
        if not self.max_batch:
            return 0.0
        turns, rest = divmod(rows, self.max_batch)
        return turns * self.full_s + self._batch_s[rest]

    def waiting(self, now: float) -> int:
        """Rows ahead: those of this gateway, and what is left of the others' as last reported."""
        if not self.others:
            return self.outstanding
        # A report ages: an executor whose queue is empty sends no further ones.
        total = self.work_s(self.others)
        left = 1.0 - (now - self.others_at) / total if total else 0.0
        if left <= 0.0:
            self.others = 0
            return self.outstanding
        return self.outstanding + math.ceil(self.others * min(left, 1.0))


class _Device:
    """One device, as known here."""

    __slots__ = ("busy_until", "draining", "lanes", "progressed_at", "slowness", "up", "usable")

    def __init__(self) -> None:
        self.up = False
        self.draining = False
        self.usable = False
        self.busy_until = -math.inf
        self.progressed_at = -math.inf
        self.slowness = 1.0
        self.lanes: dict[str, _Lane] = {}

    def lane(self, application: str) -> _Lane:
        lane = self.lanes.get(application)
        if lane is None:
            lane = self.lanes[application] = _Lane()
        return lane

    def forget_reports(self) -> None:
        self.busy_until = self.progressed_at = -math.inf
        self.slowness = 1.0
        for lane in self.lanes.values():
            lane.others = 0


class _Route:
    """A device in an application's routes, with its credit in the smooth weighted round robin."""

    __slots__ = ("credit", "device", "name", "share")

    def __init__(self, name: str, share: float, device: _Device):
        self.name = name
        self.share = share
        self.device = device
        self.credit = 0.0


class Router:
    """The plan's shares, by smooth weighted round robin, corrected by what is known of the queues.

    Each query gives every usable device credit for its share of the query's rows; the device with most credit gets
    the query and pays its rows. So shares hold over any run of queries, spread as evenly as they can be. If that
    device is not expected to answer within the budget, and another planned one is, the query goes to the one of them
    that is expected to answer first; the first device pays all the same, so that it gets no burst of queries when it
    has recovered.

    A device is down until :meth:`up` tells otherwise. One with share 0 is a stand-by: it is used only where no device
    with a share is usable (a query that insists on a variant that only the stand-by has, say).
    """

    SLOWNESS_WEIGHT = 0.1
    """How much each batch counts in the moving average of observed over planned batch time."""
    SLOWNESS_RANGE = (0.25, 4.0)

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}
        self._routes: dict[str, list[_Route]] = {}

    # --- what the caller tells ---------------------------------------------------------------------------------------

    def set_routes(self, routes: Mapping[str, Sequence[tuple[str, float]]]) -> None:
        """See :class:`QueryRouter`. Shares are relative; an application whose routes did not change keeps its credits.

        Raises:
            ValueError: a share is negative or no finite number, or a device stands twice in an application's routes;
                nothing is changed then.
        """
        for application, shares in routes.items():
            for device, share in shares:
                if not 0 <= share < math.inf:
                    raise ValueError(
                        f"routes of {application!r}: share of {device!r} must be at least 0, not {share!r}"
                    )
            if len({device for device, _ in shares}) != len(shares):
                raise ValueError(f"routes of {application!r}: a device stands in them twice")
        fresh: dict[str, list[_Route]] = {}
        for application, shares in routes.items():
            old = self._routes.get(application, [])
            if [(route.name, route.share) for route in old] == [(device, share) for device, share in shares]:
                fresh[application] = old
            else:
                fresh[application] = [_Route(device, share, self._device(device)) for device, share in shares]
        self._routes = fresh
        self._forget_unused()

    def service(self, device: str, application: str, latency: LatencyModel, max_batch: int) -> None:
        """See :class:`QueryRouter`.

        Raises:
            ValueError: ``max_batch`` is less than 1.
        """
        if max_batch < 1:
            raise ValueError(f"max_batch of {application!r} on {device!r} must be at least 1, not {max_batch!r}")
        self._device(device).lane(application).serve(latency, max_batch)

    def up(self, device: str) -> None:
        known = self._device(device)
        known.up = True
        known.draining = False
        known.usable = True

    def down(self, device: str) -> None:
        """See :class:`QueryRouter`. What was sent there stays outstanding until :meth:`done` is told of it."""
        known = self._device(device)
        known.up = known.usable = False
        known.forget_reports()

    def state(self, device: str, queued: Mapping[str, int], busy_s: float, draining: bool, now: float) -> None:
        known = self._device(device)
        known.draining = draining
        known.usable = known.up and not draining
        known.busy_until = now + busy_s
        for application, lane in known.lanes.items():
            # Some of this gateway's rows may be running, not waiting: what is taken for others' is the least it can be.
            lane.others = max(0, queued.get(application, 0) - lane.outstanding)
            lane.others_at = now
        for application, rows in queued.items():
            if application not in known.lanes and rows > 0:
                lane = known.lane(application)
                lane.others, lane.others_at = rows, now

    def sent(self, device: str, application: str, rows: int, now: float) -> None:
        known = self._device(device)
        lane = known.lane(application)
        if not lane.outstanding:
            known.progressed_at = now
        lane.outstanding += rows

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
        """See :class:`QueryRouter`. ``run_s`` and ``batch_rows`` of the batch correct the planned batch times;
        ``queue_s`` is not used by this router. More rows than are outstanding count as those."""
        known = self._device(device)
        lane = known.lane(application)
        lane.outstanding = max(0, lane.outstanding - rows)
        if not served:
            return
        # The queries of one batch come back together: only the first of them says something new.
        if now != known.progressed_at and run_s > 0 and batch_rows > 0 and (expected := lane.expected_s(batch_rows)):
            known.slowness += self.SLOWNESS_WEIGHT * (run_s / expected - known.slowness)
            low, high = self.SLOWNESS_RANGE
            known.slowness = min(max(known.slowness, low), high)
        known.progressed_at = now

    # --- decisions ---------------------------------------------------------------------------------------------------

    def pick(
        self,
        application: str,
        now: float,
        budget_s: float,
        rows: int = 1,
        exclude: Container[str] = (),
        allowed: Container[str] | None = None,
    ) -> str | None:
        """See :class:`QueryRouter`. ``budget_s``: time left. ``exclude``: devices that were tried already.
        ``allowed``: the only ones that will do. Ties go to the device that stands first in the routes.
        Does not count the query: :meth:`sent` does."""
        best: _Route | None = None
        best_credit, total = -math.inf, 0.0
        for route in self._routes.get(application, ()):
            share = route.share
            if not share or not route.device.usable:
                continue
            if (exclude and route.name in exclude) or (allowed is not None and route.name not in allowed):
                continue
            total += share
            credit = route.credit = route.credit + share * rows
            if credit > best_credit:
                best, best_credit = route, credit
        if best is None:
            return self._soonest(application, now, math.inf, rows, exclude, allowed, planned=False)
        best.credit -= total * rows
        if self._expected_s(best.device, application, rows, now) <= budget_s:
            return best.name
        return self._soonest(application, now, budget_s, rows, exclude, allowed, planned=True) or best.name

    def expected_completion_s(self, device: str, application: str, rows: int, now: float) -> float:
        """Seconds until a query of ``rows`` rows, sent now, would be answered, if the device works without pause.

        The rows ahead of it and its own take full batches and a rest. Each other application on the device gets as
        many turns as these need, or what it has waiting if that is less. From that goes the time since the device last
        answered, as far as a full batch must be running. At least the rest of the running batch, as reported, and the
        query alone.
        """
        known = self._devices.get(device)
        return 0.0 if known is None else self._expected_s(known, application, rows, now)

    def outstanding(self, device: str, application: str) -> int:
        """Rows sent there and not yet done."""
        known = self._devices.get(device)
        lane = known.lanes.get(application) if known is not None else None
        return lane.outstanding if lane is not None else 0

    # --- inside ------------------------------------------------------------------------------------------------------

    def _expected_s(self, device: _Device, application: str, rows: int, now: float) -> float:
        lane = device.lanes.get(application)
        if lane is None or not lane.max_batch:
            return max(0.0, device.busy_until - now)
        count = lane.waiting(now) + rows
        work = lane.work_s(count)
        running = lane.full_s if lane.outstanding >= lane.max_batch else 0.0
        if len(device.lanes) > 1:
            turns = -(-count // lane.max_batch)
            for other in device.lanes.values():
                if other is lane or not (other.outstanding or other.others):
                    continue
                work += min(other.work_s(other.waiting(now)), turns * other.full_s)
                if other.outstanding >= other.max_batch > 0:
                    running = max(running, other.full_s)
        work *= device.slowness
        if running:
            # A full batch never waits on purpose, so some batch has been running since the last answer.
            work -= min(now - device.progressed_at, running * device.slowness)
        alone = lane.work_s(rows) * device.slowness
        return max(work, max(0.0, device.busy_until - now) + alone)

    def _soonest(
        self,
        application: str,
        now: float,
        budget_s: float,
        rows: int,
        exclude: Container[str],
        allowed: Container[str] | None,
        planned: bool,
    ) -> str | None:
        """The usable device, with a share or without, that is expected to answer first and within ``budget_s``."""
        best, best_s = None, math.inf
        for route in self._routes.get(application, ()):
            if bool(route.share) is not planned or not route.device.usable or route.name in exclude:
                continue
            if allowed is not None and route.name not in allowed:
                continue
            expected = self._expected_s(route.device, application, rows, now)
            if expected <= budget_s and expected < best_s:
                best, best_s = route.name, expected
        return best

    def _device(self, name: str) -> _Device:
        device = self._devices.get(name)
        if device is None:
            device = self._devices[name] = _Device()
        return device

    def _forget_unused(self) -> None:
        """Devices come and go over months: one that is down, unrouted and owes nothing is forgotten."""
        routed = {route.name for routes in self._routes.values() for route in routes}
        for name, device in list(self._devices.items()):
            if not device.up and name not in routed and not any(lane.outstanding for lane in device.lanes.values()):
                del self._devices[name]
