"""The plan's shares, corrected by what is known of the queues. Pure; seconds on the caller's clock, counts in rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from workers.batching.latency import LatencyModel

from .outlook import Device
from .pools import Pools
from .shares import Round
from .soonest import Soonest


class _Pool:
    """The devices that will do for some of an application's queries, with a share (planned) and without (stand-bys).

    Attributes:
        turns: of the planned ones, by share.
        changes: how often devices had become usable or usable no more when it was last told who is.
    """

    def __init__(self, application: str, routes: Sequence[tuple[str, float, Device]]):
        self._application = application
        self._planned = [(name, device) for name, share, device in routes if share]
        self._stand_bys = [(name, device) for name, share, device in routes if not share]
        self._searches: dict[tuple[bool, int], Soonest] = {}
        self.changes = -1
        self.turns = Round([(name, share) for name, share, _ in routes if share])

    def attend(self, changes: int) -> None:
        """Let those take turns that are usable."""
        self.changes = changes
        self.turns.attend([name for name, device in self._planned if device.usable])

    def soonest(self, planned: bool, now: float, latest: float, rows: int, exclude: Collection[str]) -> str | None:
        """The usable one that answers first, and by ``latest``."""
        # A search for each power of two, so that they stay few.
        key = (planned, 1 << (rows.bit_length() - 1))
        search = self._searches.get(key)
        if search is None:
            devices = self._planned if planned else self._stand_bys
            if not devices:
                return None
            search = self._searches[key] = Soonest(self._application, key[1], devices)
        return search.first(now, latest, rows, exclude)

    def close(self) -> None:
        for search in self._searches.values():
            search.close()


class _Application:
    """One application's routes, and pools for its queries."""

    def __init__(self, name: str, shares: Sequence[tuple[str, float]], devices: Mapping[str, Device]):
        self.shares = list(shares)
        routes = [(device, share, devices[device]) for device, share in shares]

        def pool(allowed: Collection[str] | None) -> _Pool:
            return _Pool(name, routes if allowed is None else [route for route in routes if route[0] in allowed])

        self.pools = Pools(pool, _Pool.close)

    def close(self) -> None:
        for pool in self.pools.all():
            pool.close()


class Router:
    """A :class:`~.router.QueryRouter`: the plan's shares, corrected by what is known of the queues.

    The queries of an application go to devices in turns, as evenly as the shares allow (:class:`Round`). If the device
    whose turn it is is not expected to answer within the budget, and another planned one is, the query goes to the one
    of them that is expected to answer first; the first device pays all the same, so that it gets no burst of queries
    when it has recovered. Queries that insist on the same devices (``allowed``) take turns among themselves.

    A device is down until :meth:`up` tells otherwise. One with share 0 is a stand-by: it is used only where no device
    with a share is usable (a query that insists on a variant that only the stand-by has, say).
    """

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._applications: dict[str, _Application] = {}
        #: how often a device became usable, or usable no more
        self._changes = 0

    # --- what the caller tells ---------------------------------------------------------------------------------------

    def set_routes(self, routes: Mapping[str, Sequence[tuple[str, float]]]) -> None:
        """See :class:`QueryRouter`. Shares are relative; an application whose routes did not change goes on with its
        turns.

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
        old, self._applications = self._applications, {}
        for name, shares in routes.items():
            for device, _ in shares:
                self._device(device)
            same = name in old and old[name].shares == [(device, share) for device, share in shares]
            self._applications[name] = old.pop(name) if same else _Application(name, shares, self._devices)
        for gone in old.values():
            gone.close()
        self._forget_unused()

    def service(self, device: str, application: str, latency: LatencyModel, max_batch: int) -> None:
        """See :class:`QueryRouter`.

        Raises:
            ValueError: ``max_batch`` is less than 1.
        """
        if max_batch < 1:
            raise ValueError(f"max_batch of {application!r} on {device!r} must be at least 1, not {max_batch!r}")
        self._device(device).serve(application, latency, max_batch)

    def up(self, device: str) -> None:
        """See :class:`QueryRouter`."""
        self._uses(self._device(device), up=True, draining=False)

    def down(self, device: str) -> None:
        """See :class:`QueryRouter`. What was sent there stays outstanding until :meth:`done` is told of it."""
        known = self._device(device)
        known.forget_reports()
        self._uses(known, up=False, draining=known.draining)

    def state(self, device: str, queued: Mapping[str, int], busy_s: float, draining: bool, now: float) -> None:
        """See :class:`QueryRouter`.

        Raises:
            ValueError: ``busy_s`` is no finite time; the report changes nothing then.
        """
        known = self._device(device)
        known.reported(queued, busy_s, now)
        self._uses(known, up=known.up, draining=draining)

    def sent(self, device: str, application: str, rows: int, now: float) -> None:
        """See :class:`QueryRouter`."""
        self._device(device).sent(application, rows, now)

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
        self._device(device).done(application, rows, now, served, run_s, batch_rows)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def pick(
        self,
        application: str,
        now: float,
        budget_s: float,
        rows: int = 1,
        exclude: Collection[str] = (),
        allowed: Collection[str] | None = None,
    ) -> str | None:
        """See :class:`QueryRouter`. Ties go to the device that stands first in the routes. A query without rows counts
        as one row."""
        known = self._applications.get(application)
        if known is None:
            return None
        if rows < 1:
            rows = 1
        pool = known.pools.of(allowed)
        if pool.changes != self._changes:
            pool.attend(self._changes)
        turn = pool.turns.take(rows, exclude)
        if turn is None:
            return pool.soonest(False, now, math.inf, rows, exclude)
        at, takes = self._devices[turn].outlook(application, rows)
        latest = now + budget_s
        if at <= latest and now + takes <= latest:
            return turn
        return pool.soonest(True, now, latest, rows, exclude) or turn

    def outstanding(self, device: str, application: str) -> int:
        """Rows sent there and not yet done."""
        known = self._devices.get(device)
        lane = known.lanes.get(application) if known is not None else None
        return lane.outstanding if lane is not None else 0

    # --- inside ------------------------------------------------------------------------------------------------------

    def _uses(self, device: Device, up: bool, draining: bool) -> None:
        device.up, device.draining = up, draining
        usable = up and not draining
        if usable is not device.usable:
            device.usable = usable
            device.happened()
            self._changes += 1

    def _device(self, name: str) -> Device:
        device = self._devices.get(name)
        if device is None:
            device = self._devices[name] = Device()
        return device

    def _forget_unused(self) -> None:
        """Devices come and go over months: one that is down, unrouted and owes nothing is forgotten."""
        routed = {device for application in self._applications.values() for device, _ in application.shares}
        for name, device in list(self._devices.items()):
            if not device.up and name not in routed and not any(lane.outstanding for lane in device.lanes.values()):
                del self._devices[name]
