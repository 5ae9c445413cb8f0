"""Queries by shares, as evenly as they allow. Pure; counts in rows.

Worst-case fair weighted fair queueing (WF2Q+: Bennett and Zhang, Hierarchical Packet Fair Queueing Algorithms, SIGCOMM
1996) with devices for flows and rows for bytes: each row of a device has a virtual start and a virtual finish, one over
its share later. Of the devices whose next row has started, the one whose row finishes first is next. While all devices
are able, none gets a whole query more or less than its share.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

#: a share counts as at least this part of the largest, beyond which virtual times would lose their precision
LEAST_SHARE = 1e-9
#: rows by which a start may be ahead and count as now, because sums of fractions are inexact
_ROUNDING_ROWS = 1e-6
#: virtual time at which the clock is set back, while sums are still exact enough
_LONGEST = 1e6


class _Seat:
    """A device in the round, with the virtual ``start`` and ``finish`` of its next row."""

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
    """Who gets the next query.

    Args:
        shares: (device, share) pairs; shares are above 0, finite, and relative to one another.
    """

    def __init__(self, shares: Sequence[tuple[Hashable, float]]) -> None:
        largest = max((share for _, share in shares), default=1.0)
        self._seats = [_Seat(device, max(share / largest, LEAST_SHARE)) for device, share in shares]
        self._total = sum([seat.share for seat in self._seats])
        self._now = 0.0

    def take(self, rows: int, able: Collection[Hashable]) -> Hashable | None:
        """The able device that is next, which pays for ``rows`` rows; None: there is none. Ties go to the first. The
        others neither gain nor lose by this query."""
        seats = [seat for seat in self._seats if seat.device in able]
        if not seats:
            return None
        begun = self._now + _ROUNDING_ROWS / self._total
        started = [seat for seat in seats if seat.start <= begun]
        if started:
            seat = min(started, key=lambda seat: seat.finish)
        else:
            seat = min(seats, key=lambda seat: seat.start)
        everyone = len(seats) == len(self._seats)
        step = rows / (self._total if everyone else sum([one.share for one in seats]))
        self._now += step
        seat.move(seat.start + rows * seat.stride)
        if not everyone:
            for other in self._seats:
                if other.device not in able:
                    other.move(other.start + step)
        if self._now > _LONGEST:
            for one in self._seats:
                one.move(one.start - self._now)
            self._now = 0.0
        return seat.device
