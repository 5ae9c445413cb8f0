"""Routers, which choose a device for each query. Pure, single-threaded.

Times are in seconds, counts in rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

from .shares import Round

#: (device, share) pairs; shares are relative to one another
Shares = Sequence[tuple[Hashable, float]]


class Router:
    """Chooses among the devices of an application, by the plan's shares alone.

    Args:
        order: makes from the shares above 0 the order in which an application's devices get its queries, with the
            method ``take`` of :class:`.shares.Round`, which is as even as the shares allow.

    Attributes:
        active_first: it is to be asked about devices with active instances first, then about all.
    """

    active_first = False

    def __init__(self, order: Callable[[Shares], Round] = Round) -> None:
        self._order = order
        self._orders: dict[str, tuple[Shares, Round]] = {}

    def set_routes(self, routes: Mapping[str, Shares]) -> None:
        """Replace the routes of all applications.

        A device with share 0 gets no queries. An application whose routes did not change goes on with its order.
        """
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


class LeastCompletionRouter(Router):
    """The plan's shares, corrected by what is queued.

    Where the device that is next would be late and another one would not, the query goes to the one that is expected to
    answer first. The next one pays all the same, so that no burst of queries reaches it once it has recovered.
    """

    def pick(
        self,
        application: str,
        rows: int,
        able: Collection[Hashable],
        budget_s: float,
        expected_s: Callable[[Hashable], float],
        queued: Callable[[Hashable], int],
    ) -> Hashable | None:
        """See :class:`Router`. Ties go to the first in the routes."""
        following = super().pick(application, rows, able, budget_s, expected_s, queued)
        if following is None or expected_s(following) <= budget_s:
            return following
        shares, _ = self._orders[application]
        expected = [(expected_s(device), device) for device, _ in shares if device in able]
        soonest_s, device = min(expected, key=lambda item: item[0])
        return device if soonest_s <= budget_s else following


class ShortestQueueRouter(Router):
    """Chooses the device with the fewest rows.

    Where the next one by the plan's shares is among several such devices, it is chosen.
    """

    def pick(
        self,
        application: str,
        rows: int,
        able: Collection[Hashable],
        budget_s: float,
        expected_s: Callable[[Hashable], float],
        queued: Callable[[Hashable], int],
    ) -> Hashable | None:
        """See :class:`Router`. Other ties go to the first in the routes."""
        following = super().pick(application, rows, able, budget_s, expected_s, queued)
        if following is None:
            return None
        chosen, fewest = following, queued(following)
        for device, _ in self._orders[application][0]:
            if not fewest:
                break
            if device in able and (rows_there := queued(device)) < fewest:
                chosen, fewest = device, rows_there
        return chosen


class ActiveFirstRouter(LeastCompletionRouter):
    """Prefers active instances, as in INFaaS (Section 4.1).

    Overloaded and interfered instances get queries only where no other is active.
    """

    active_first = True
