"""Routers of published stacks: which device gets a query when it arrives.

Pure, single-threaded. Times are in seconds, counts in rows. A router has devices in turn, as evenly as their shares
allow: worst-case fair weighted fair queueing (WF2Q+: Bennett and Zhang, Hierarchical Packet Fair Queueing Algorithms,
SIGCOMM 1996) with devices for flows and rows for bytes: each row of a device has a virtual start and a virtual finish,
one over its share later. Among the devices whose next row has started, the one whose row finishes first is next. While
all devices are able, none gets a whole query more or less than its share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

#: (device, share) pairs; shares are relative to one another
Shares = Sequence[tuple[Hashable, float]]

#: a share counts as at least this part of the largest, beyond which virtual times would lose their precision
LEAST_SHARE = 1e-9
#: rows by which a start may be ahead and count as now, because sums of fractions are inexact
_ROUNDING_ROWS = 1e-6
#: virtual time at which the clock is set back, while sums are still exact enough
_LONGEST = 1e6


class _Flow:
    __slots__ = ("device", "finish", "share", "start", "stride")

    def __init__(self, device: Hashable, share: float) -> None:
        self.device = device
        self.share = share
        self.stride = 1.0 / share
        self.move(0.0)

    def move(self, start: float) -> None:
        self.start = start
        self.finish = start + self.stride


class Round:
    """Devices in the order in which they get queries; shares are above 0."""

    def __init__(self, shares: Sequence[tuple[Hashable, float]]) -> None:
        largest = max((share for _, share in shares), default=1.0)
        self._flows = [_Flow(device, max(share / largest, LEAST_SHARE)) for device, share in shares]
        self._total = sum([flow.share for flow in self._flows])
        self._now = 0.0

    def take(self, rows: int, able: Collection[Hashable]) -> Hashable | None:
        """The able device that is next, which pays for ``rows`` rows; None: no device is.

        Ties go to the first. Devices that are not able neither gain nor lose by this query.
        """
        flows = [flow for flow in self._flows if flow.device in able]
        if not flows:
            return None
        begun = self._now + _ROUNDING_ROWS / self._total
        started = [flow for flow in flows if flow.start <= begun]
        if started:
            flow = min(started, key=lambda flow: flow.finish)
        else:
            flow = min(flows, key=lambda flow: flow.start)
        all_able = len(flows) == len(self._flows)
        step = rows / (self._total if all_able else sum([other.share for other in flows]))
        self._now += step
        flow.move(flow.start + rows * flow.stride)
        if not all_able:
            for other in self._flows:
                if other.device not in able:
                    other.move(other.start + step)
        if self._now > _LONGEST:
            for other in self._flows:
                other.move(other.start - self._now)
            self._now = 0.0
        return flow.device


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
        following = super().pick(application, rows, able, budget_s, expected_s, queued)
        if following is None or expected_s(following) <= budget_s:
            return following
        shares, _ = self._orders[application]
        expected = [(expected_s(device), device) for device, _ in shares if device in able]
        soonest_s, device = min(expected, key=lambda item: item[0])
        return device if soonest_s <= budget_s else following
