"""Queries by shares, as evenly as can be, in logarithmic time. Pure; counts in rows.

Worst-case fair weighted fair queueing (WF2Q+: Bennett and Zhang, Hierarchical Packet Fair Queueing Algorithms, SIGCOMM
1996) with devices for flows and rows for bytes: each row of a device has a virtual start and a
virtual finish, one over its share later. Of the devices whose next row has started, the one whose row finishes first is
next. While the devices stay the same, none gets a whole query more or less than its share (two, where they are many).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

#: a share counts as at least this part of the largest: beyond, virtual times would lose their precision
LEAST_SHARE = 1e-9
#: rows by which a start may be ahead and count as now: what sums of fractions are inexact by
_ROUNDING_ROWS = 1e-6
#: virtual time at which the clock is set back, while sums are still exact enough
_LONGEST = 1e6
#: so many devices or fewer start together
_FEW = 16


class _Seat:
    """A device in the round; ``start`` of its next row, in virtual time (of one that is away: from the clock)."""

    __slots__ = ("barred", "name", "order", "present", "share", "start", "stride")

    def __init__(self, order: int, name: str, share: float, phase: float):
        self.order = order
        self.name = name
        self.share = share
        self.stride = 1.0 / share
        self.start = phase * self.stride
        self.present = False
        self.barred = False


class Round:
    """Who gets the next query, by shares.

    Args:
        shares: device -> share, above 0 and finite; relative to one another. Ties go to the first.

    Nobody is present at first.
    """

    def __init__(self, shares: Sequence[tuple[str, float]]):
        largest = max((share for _, share in shares), default=1.0)
        # Rows of equal shares start together. Where that is many, they do it one after the other instead, each ahead of
        # its share or behind by another part of half a row, so that no single query has to look at all.
        count = len(shares)
        stagger = 1.0 / count if count > _FEW else 0.0
        self._seats = {
            name: _Seat(order, name, max(share / largest, LEAST_SHARE), stagger * (order - (count - 1) / 2))
            for order, (name, share) in enumerate(shares)
        }
        self._now = 0.0
        self._total = 0.0
        self._present = 0
        # By start, and by finish. A start may have been put off since: what comes up goes where it belongs by now.
        self._to_start: list[tuple[float, int, _Seat]] = []
        self._started: list[tuple[float, int, _Seat]] = []

    def attend(self, names: Iterable[str]) -> None:
        """Who can be chosen from now on. One that comes back gets its share from now on, and nothing for the time that
        it was away; by what it was ahead of its share or behind it, it is so again."""
        for seat in self._seats.values():
            if seat.present:
                seat.start -= self._now
                seat.present = False
        present = [self._seats[name] for name in names if name in self._seats]
        self._total = sum(seat.share for seat in present)
        self._present = len(present)
        # Those who left took along what they were ahead or behind: the clock is where nothing is owed on the whole (the
        # virtual time of Stoica et al., A Proportional Share Resource Allocation Algorithm, RTSS 1996).
        clock = sum(seat.share * seat.start for seat in present) / self._total if present else 0.0
        for seat in present:
            seat.start -= clock
            seat.present = True
        self._now = 0.0
        self._started = []
        self._to_start = [(seat.start, seat.order, seat) for seat in present]
        heapify(self._to_start)

    def take(self, rows: int, exclude: Collection[str] = ()) -> str | None:
        """The device that is next, which pays for ``rows`` rows; None: nobody is present whom ``exclude`` does not
        name. Those named neither gain nor lose by this query."""
        barred = self._bar(exclude) if exclude else ()
        total = self._total
        if barred:
            if len(barred) == self._present:
                for one in barred:
                    one.barred = False
                return None
            total -= sum(one.share for one in barred)
        elif not self._present:
            return None
        seat = self._next()
        # What is left of a sum by subtraction may be nothing where shares differ a lot.
        step = rows / (total if total > seat.share else seat.share)
        self._now += step
        seat.start += rows * seat.stride
        heappush(self._to_start, (seat.start, seat.order, seat))
        for one in barred:
            one.barred = False
            one.start += step
        if self._now > _LONGEST:
            self.attend([one.name for one in self._seats.values() if one.present])
        return seat.name

    def _bar(self, names: Collection[str]) -> list[_Seat]:
        barred = []
        # In an order that does not depend on that of a set: sums of fractions would.
        for name in sorted(names) if len(names) > 1 else names:
            seat = self._seats.get(name)
            if seat is not None and seat.present and not seat.barred:
                seat.barred = True
                barred.append(seat)
        return barred

    def _next(self) -> _Seat:
        """Take out the seat whose turn it is."""
        started, to_start = self._started, self._to_start
        begun = self._now + _ROUNDING_ROWS / self._total
        while to_start and to_start[0][0] <= begun:
            start, order, seat = to_start[0]
            if start != seat.start:
                heapreplace(to_start, (seat.start, order, seat))
            else:
                heappop(to_start)
                heappush(started, (start + seat.stride, order, seat))
        found, aside = None, []
        while started and found is None:
            finish, order, seat = item = heappop(started)
            if finish != seat.start + seat.stride:
                # Put off since, for a query that it was not to have; if not beyond now, it is in turn all the same.
                if seat.start <= begun:
                    heappush(started, (seat.start + seat.stride, order, seat))
                else:
                    heappush(to_start, (seat.start, order, seat))
            elif seat.barred:
                aside.append(item)
            else:
                found = seat
        for item in aside:
            heappush(started, item)
        return found if found is not None else self._next_to_start()

    def _next_to_start(self) -> _Seat:
        """Take out the seat whose row starts first: where all whose rows have started are barred."""
        to_start, aside = self._to_start, []
        while True:
            start, order, seat = item = heappop(to_start)
            if start != seat.start:
                heappush(to_start, (seat.start, order, seat))
            elif seat.barred:
                aside.append(item)
            else:
                break
        for item in aside:
            heappush(to_start, item)
        return seat
