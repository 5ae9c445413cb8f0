"""Queries by shares, as evenly as can be, in logarithmic time. Pure; counts in rows.

Worst-case fair weighted fair queueing (WF2Q+: Bennett and Zhang, Hierarchical Packet Fair Queueing Algorithms, SIGCOMM
1996, equations 27 to 29) with devices for flows and rows for bytes: each row of a device has a virtual start and a
virtual finish, one over its share later. Of the devices whose next row has started, the one whose row finishes first is
next. While the devices stay the same, none is ever a whole query ahead of its share or behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush

#: a share counts as at least this part of the largest: beyond, virtual times would lose their precision
LEAST_SHARE = 1e-9
#: rows by which a start may be ahead and count as now: what sums of fractions are inexact by
_ROUNDING_ROWS = 1e-6
#: virtual time at which clocks are set back, while sums are still exact enough
_LONGEST = 1e6


class _Seat:
    """A device in the round; ``start`` of its next row, in virtual time."""

    __slots__ = ("item", "name", "order", "share", "start", "stride")

    def __init__(self, order: int, name: str, share: float):
        self.order = order
        self.name = name
        self.share = share
        self.stride = 1.0 / share
        self.start = 0.0
        #: the entry in one of the heaps that counts, others of this seat being out of date; None: not present
        self.item: tuple | None = None


class Round:
    """Who gets the next query, by shares.

    Args:
        shares: device -> share, above 0 and finite; relative to one another. Ties go to the first.

    Nobody is present at first.
    """

    def __init__(self, shares: Sequence[tuple[str, float]]):
        largest = max((share for _, share in shares), default=1.0)
        self._seats = {
            name: _Seat(order, name, max(share / largest, LEAST_SHARE)) for order, (name, share) in enumerate(shares)
        }
        self._now = 0.0
        self._total = 0.0
        self._present = 0
        self._started: list[tuple[float, int, _Seat]] = []
        self._to_start: list[tuple[float, int, _Seat]] = []

    def attend(self, names: Iterable[str]) -> None:
        """Who can be chosen from now on. One that comes back gets its share from now on, and nothing for the time that
        it was away; by what it was ahead of its share or behind it, it is so again."""
        for seat in self._seats.values():
            if seat.item is not None:
                # The starts of those who are away are relative to a clock at zero.
                seat.start -= self._now
                seat.item = None
        present = [self._seats[name] for name in names if name in self._seats]
        self._total = sum(seat.share for seat in present)
        self._present = len(present)
        # Those who left took along what they were ahead or behind: the clock is where nothing is owed on the whole (the
        # virtual time of Stoica et al., A Proportional Share Resource Allocation Algorithm, RTSS 1996, equation 12).
        self._now = sum(seat.share * seat.start for seat in present) / self._total if present else 0.0
        self._started = []
        self._to_start = []
        for seat in present:
            seat.start -= self._now
            seat.item = (seat.start, seat.order, seat)
            self._to_start.append(seat.item)
        heapify(self._to_start)
        self._now = 0.0

    def take(self, rows: int, exclude: Collection[str] = ()) -> str | None:
        """The device that is next, which pays for ``rows`` rows; None: nobody is present whom ``exclude`` does not
        name. Those named neither gain nor lose by this query."""
        barred = self._barred(exclude) if exclude else ()
        if len(barred) == self._present:
            return None
        for seat in barred:
            seat.item = None
        seat = self._next()
        total = self._total
        if barred:
            total = max(total - sum(one.share for one in barred), seat.share)
        step = rows / total
        self._now += step
        seat.start += rows * seat.stride
        self._enter(seat)
        for one in barred:
            one.start += step
            self._enter(one)
        if self._now > _LONGEST or len(self._started) + len(self._to_start) > 2 * self._present + 64:
            self.attend([one.name for one in self._seats.values() if one.item is not None])
        return seat.name

    def _barred(self, names: Collection[str]) -> list[_Seat]:
        # In an order that does not depend on that of a set: sums of fractions would.
        seats = [self._seats[name] for name in sorted(set(names)) if name in self._seats]
        return [seat for seat in seats if seat.item is not None]

    def _enter(self, seat: _Seat) -> None:
        item = seat.item = (seat.start, seat.order, seat)
        heappush(self._to_start, item)

    def _next(self) -> _Seat:
        """Take out the seat whose turn it is."""
        started, to_start = self._started, self._to_start
        begun = self._now + _ROUNDING_ROWS / self._total
        while to_start and to_start[0][0] <= begun:
            item = heappop(to_start)
            seat = item[2]
            if seat.item is item:
                seat.item = (seat.start + seat.stride, seat.order, seat)
                heappush(started, seat.item)
        while started:
            item = heappop(started)
            if item[2].item is item:
                return item[2]
        while True:
            item = heappop(to_start)
            if item[2].item is item:
                # Nobody's row has started (the clock is behind where somebody was barred or left): it starts now.
                self._now = item[2].start
                return item[2]
