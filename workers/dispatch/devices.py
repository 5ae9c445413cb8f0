"""A device as the dispatcher sees it: what it was granted, what is booked on it, and how well it keeps its times. Pure.

Times are the gateway's: a batch "ends" when its answers are expected there, so that the way there and back counts once
for a batch on an idle device and not at all where batches follow each other.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol

from .menu import INF, Menu, Option
from .pace import Factors

if TYPE_CHECKING:
    from .fleet import Application, Kind


class Query(Protocol):
    """``deadline``: seconds on the caller's clock by when its answer must be back; inf: any time. ``rows`` >= 1.
    ``key``: what it must have in common with another one of its application to run with it (the shape of its inputs).
    ``booking`` belongs to the dispatcher; None at first."""

    arrived: float
    deadline: float
    rows: int
    key: Hashable
    booking: Batch | None


class Batch:
    """Queries that shall run together: booked (``granted`` False), then granted and no longer changed.

    ``key``: its queries'. ``deadline``: the earliest of theirs. ``end``: when its answers are expected, once granted.
    ``ready_at``: since when it could have been; inf: not yet.
    """

    __slots__ = (
        "application",
        "deadline",
        "device",
        "end",
        "granted",
        "granted_at",
        "key",
        "option",
        "queries",
        "ready_at",
        "rows",
    )

    def __init__(self, application: Application, option: Option, device: Device, query: Query) -> None:
        self.application = application
        self.option = option
        self.device = device
        self.queries = [query]
        self.key = query.key
        self.rows = query.rows
        self.deadline = query.deadline
        self.granted = False
        self.granted_at = 0.0
        self.end = 0.0
        self.ready_at = INF
        query.booking = self


class Device:
    """One device. ``menus`` by application. ``free_at``: when all that is granted is expected back (in the past: idle).
    ``booked_s``: seconds of what is booked. ``way_s``: there and back. ``away``: it does something else until
    ``free_at`` (a load, say), which is no sign of pressure. ``kind``: the fleet's, None while it takes no queries."""

    __slots__ = (
        "away",
        "booked",
        "booked_s",
        "claims",
        "counted",
        "counted_booked_s",
        "counted_until",
        "factors",
        "forget_at",
        "free_at",
        "granted",
        "heard_at",
        "kind",
        "menus",
        "name",
        "shy_s",
        "shy_until",
        "up",
        "wake_at",
        "way_s",
    )

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.menus: dict[str, Menu] = {}
        self.kind: Kind | None = None
        self.up = False
        self.away = False
        self.free_at = -INF
        self.booked_s = 0.0
        self.booked: list[Batch] = []
        #: (application, seconds): what depends on this device, and how long its next query could wait here
        self.claims: list[tuple[Application, float]] = []
        self.granted: list[Batch] = []
        self.way_s = 0.0
        #: how many times its expected time is enough for a batch, by option
        self.factors = Factors()
        self.wake_at = INF
        #: when it last told how long a batch took
        self.heard_at = -INF
        #: when it is next asked what of its slowness is to be forgotten
        self.forget_at = -INF
        #: for how long it was last left alone because it gave queries back, and until when
        self.shy_s = 0.0
        self.shy_until = -INF
        #: what its kind has counted of it: whether it is busy, until when, and what is booked
        self.counted = 0
        self.counted_until = 0.0
        self.counted_booked_s = 0.0

    def starts_in(self, now: float) -> float:
        """Seconds until the answers of an imaginary batch of no length, granted as early as useful."""
        wait = self.free_at - now
        return wait if wait > self.way_s else self.way_s

    def seconds(self, option: Option, rows: int) -> float:
        """Seconds that a batch takes here, to count on."""
        return option.seconds(rows) * self.factors[option]

    def least(self, menu: Menu, rows: int) -> float:
        """Seconds to count on for the option that is done first here."""
        return min(option.seconds(rows) * self.factors[option] for option in menu.options)

    def room(self, now: float, options: list[Option] | None = None) -> list[tuple[float, float]]:
        """By position in front of a booked batch, the last behind all: when a batch put there would start, and how
        long it might take with all behind it still in time. ``options``: to run what is booked on instead."""
        starts, end = [now + self.starts_in(now)], now + self.starts_in(now)
        for i, batch in enumerate(self.booked):
            option = batch.option if options is None else options[i]
            end += option.seconds(batch.rows) * self.factors[option]
            starts.append(end)
        slack, found = INF, [(end, INF)]
        for i in range(len(self.booked) - 1, -1, -1):
            slack = min(slack, self.booked[i].deadline - starts[i + 1])
            found.append((starts[i], slack))
        found.reverse()
        return found

    def slack(self, now: float) -> float:
        """By how many seconds all that is booked may be delayed and still end in time."""
        slack, end = INF, now + self.starts_in(now)
        for batch in self.booked:
            end += self.seconds(batch.option, batch.rows)
            slack = min(slack, batch.deadline - end)
        return slack

    def recount(self) -> None:
        """After a change of what is booked."""
        total = 0.0
        factors = self.factors
        for batch in self.booked:
            option = batch.option
            total += option.seconds(batch.rows) * factors[option]
        self.booked_s = total
