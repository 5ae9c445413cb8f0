"""Routers of published stacks: which device gets a query when it arrives.

Pure, single-threaded. Times are in seconds, counts in rows. A router has devices in turn, as evenly as their shares
allow (smooth weighted round robin).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

#: (device, share) pairs; shares are relative to one another
Shares = Sequence[tuple[Hashable, float]]


class Round:
    """Devices in the order in which they get queries: next is the one furthest behind its share; shares are above 0."""

    def __init__(self, shares: Shares) -> None:
        self._shares = dict(shares)
        #: rows that each device is behind
        self._behind = dict.fromkeys(self._shares, 0.0)

    def take(self, rows: int, able: Collection[Hashable]) -> Hashable | None:
        """The able device that is next, which pays for ``rows`` rows; None: no device is.

        Ties go to the first. Devices that are not able neither gain nor lose by this query.
        """
        shares = {device: share for device, share in self._shares.items() if device in able}
        if not shares:
            return None
        behind, total = self._behind, sum(shares.values())
        for device, share in shares.items():
            behind[device] += share / total * rows
        # Sums of fractions are inexact: ties are to stay ties.
        chosen = max(shares, key=lambda device: round(behind[device], 9))
        behind[chosen] -= rows
        return chosen


class Router:
    """Chooses among the devices of an application, by the plan's shares alone.

    Args:
        order: makes from the shares above 0 the order in which an application's devices get its queries.

    Attributes:
        active_first: it is to be asked about devices with active instances first, then about all.
    """

    active_first = False

    def __init__(self, order: Callable[[Shares], Round] = Round) -> None:
        self._order = order
        self._orders: dict[str, tuple[Shares, Round]] = {}

    def set_routes(self, routes: Mapping[str, Shares]) -> None:
        orders = {}
        for name, pairs in routes.items():
            shares = [(device, share) for device, share in pairs if share > 0]
            previous = self._orders.get(name)
            orders[name] = previous if previous and previous[0] == shares else (shares, self._order(shares))
        self._orders = orders

    def pick(
        self,
        application: str,
        rows: int,
        able: Collection[Hashable],
        budget_s: float,
        expected_s: Callable[[Hashable], float],
        queued: Callable[[Hashable], int],
    ) -> Hashable | None:
        """The device for a query; None: no device with a share is able.

        Args:
            able: the devices that may answer it.
            budget_s: seconds left until its deadline.
            expected_s: seconds until a device would answer it.
            queued: rows that wait for a device or run on it.
        """
        route = self._orders.get(application)
        return None if route is None else route[1].take(rows, able)
