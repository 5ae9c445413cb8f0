"""What is booked where: queries find their places, lose them, and move. Pure; grants nothing.

Whatever changes here for a device leaves it in :attr:`Bookings.touched`: whether it is time to grant what is booked on
it is to be asked when all that happened together has its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..options import INF, Option
from .admission import budget, kept_free, overtakes, roomy, spacious
from .device_groups import Fleet
from .insertion import insertion
from .selection import ROUNDING_S, anywhere, joinable, joins, opening, takeover
from .state import Application, Batch, Device, Query

#: while queries are refused, all of an application's devices are looked at for each one that has no usual place if
#: there are no more than this; of more, now and then
MANY = 32


class Bookings:
    """The batches that are booked on a fleet's devices.

    ``refused``: queries that no device can answer in time, to be taken by the dispatcher.
    ``touched``: devices of which something has changed, in that order. ``behind``: devices on which something is booked
    behind something granted.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.refused: list[Query] = []
        self.touched: dict[Device, None] = {}
        self.behind: dict[Device, None] = {}

    # --- queries -----------------------------------------------------------------------------------------------------

    def place(self, application: Application, query: Query, now: float, again: bool = False) -> None:
        """Book a query, or refuse it. ``again``: it had a place already, and is not to lose it for want of room for
        others."""
        rows, deadline = query.rows, query.deadline + ROUNDING_S
        kept_s = 0.0 if again else kept_free(application, query, now)
        deadline -= kept_s
        batch = joinable(application, query, deadline, now, kept_s) if application.open else None
        worth = -INF if batch is None else batch.option.worth
        if worth < application.best_worth:
            found = opening(application, query, now, deadline, worth)
            if found is not None:
                option, device = found
                if (
                    again
                    or not application.pressed(now)
                    or roomy(option, device, rows, now, deadline, budget(application, query) - kept_s)
                ):
                    self._book(Batch(application, option, device, query), now)
                    return
        if batch is not None:
            if application.narrows(batch):
                batch.application = application
            self._put(batch, query)
            self._recount(batch.device, now)
        elif not self._place_elsewhere(application, query, now, deadline + kept_s, again, kept_s):
            if application.serve_late and query.deadline < INF and application.groups:
                query.deadline = INF
                self.place(application, query, now, again)
            else:
                application.missed(now)
                if again:
                    application.leeway.given_up(now)
                application.demand.under_way -= 1
                self.refuse([query])

    def place_all(self, arrivals: Sequence[tuple[Application | None, Query]], now: float) -> None:
        """Book queries that arrived together, each with its application; None: there is none of that name."""
        last: Batch | None = None
        stale: Device | None = None
        for application, query in arrivals:
            if application is None:
                self.refuse([query])
            elif (
                last is None
                or last.application is not application
                or application.kept(now)
                or not joins(last, query, now)
            ):
                # How long batches take by now counts for whoever is placed next.
                if stale is not None:
                    self._recount(stale, now)
                    stale = None
                self.place(application, query, now)
                last = query.booking
            else:
                # What it means for its device is seen to when the last of them has joined.
                self._put(last, query)
                stale = last.device
        if stale is not None:
            self._recount(stale, now)

    def book_again(self, queries: Iterable[Query], now: float) -> None:
        """Book queries that had places, the most urgent first; of applications that are gone they are refused."""
        for query in sorted(queries, key=lambda query: query.deadline):
            demand = query.booking.application.demand if query.booking is not None else None
            application = self._fleet.application(query.query_class, now)
            query.booking = None
            if application is None:
                self.refuse([query])
            else:
                if application.demand is not demand:
                    application.demand.under_way += 1
                self.place(application, query, now, again=True)

    def withdraw(self, query: Query, now: float) -> bool:
        """Forget a query that waits; False if it does not (any more)."""
        batch: Batch | None = query.booking
        if batch is None or batch.granted:
            return False
        query.booking = None
        batch.application.demand.under_way -= 1
        if len(batch.queries) == 1:
            self.unbook(batch, now)
        else:
            batch.queries.remove(query)
            batch.rows -= query.rows
            batch.deadline = min(other.deadline for other in batch.queries)
            self._keep_open(batch)
            self._recount(batch.device, now)
        return True

    def refuse(self, queries: Iterable[Query]) -> None:
        """Give queries up that are booked nowhere."""
        for query in queries:
            query.booking = None
            self.refused.append(query)

    # --- devices -----------------------------------------------------------------------------------------------------

    def check(self, device: Device, now: float) -> None:
        """After a delay of the device: run what would be late on quicker variants, or book it elsewhere."""
        end = now + device.starts_in(now)
        moved: list[Query] = []
        late = False
        for batch in list(device.booked):
            seconds = device.seconds(batch.option, batch.rows)
            if end + seconds > batch.deadline + ROUNDING_S:
                late = True
                menu = device.menus.get(batch.application.query_class)
                latest = batch.deadline + ROUNDING_S
                option = menu.best(batch.rows, len(batch.queries), latest - end, device.factors, 0) if menu else None
                # A difference rounds otherwise than the sum by which it is late.
                if option is None or end + device.seconds(option, batch.rows) > latest:
                    self.unbook(batch, now)
                    moved += batch.queries
                    continue
                self._change(batch, option)
                seconds = device.seconds(option, batch.rows)
            end += seconds
        if late:
            self._recount(device, now)
            self.book_again(moved, now)

    def take_back(self, device: Device, now: float) -> None:
        """Book all that is booked on the device elsewhere."""
        moved = []
        for batch in list(device.booked):
            self.unbook(batch, now)
            moved += batch.queries
        self.behind.pop(device, None)
        self.touched[device] = None
        self.book_again(moved, now)

    def steal(self, device: Device, now: float) -> None:
        """An idle device takes over what waits behind others and would be no less accurate here, started at once."""
        if not device.up or device.away:
            return
        found = takeover(device, self.behind, now)
        if found is not None:
            option, batch = found
            self.unbook(batch, now)
            batch.option, batch.device = option, device
            self._book(batch, now, 0)

    @staticmethod
    def take(batch: Batch) -> None:
        """Take the first batch off its device, to be granted; the device is to be noted."""
        device = batch.device
        del device.booked[0]
        device.recount()
        if batch in batch.application.open:
            batch.application.open.remove(batch)

    def unbook(self, batch: Batch, now: float) -> None:
        """Take a batch off its device; its queries are the caller's again."""
        device = batch.device
        device.booked.remove(batch)
        self._recount(device, now)
        if batch in batch.application.open:
            batch.application.open.remove(batch)

    # --- batches -----------------------------------------------------------------------------------------------------

    def _place_elsewhere(
        self, application: Application, query: Query, now: float, deadline: float, again: bool, kept_s: float
    ) -> bool:
        """Open a batch for a query that has no place where one is usually found; on busy devices ``kept_s`` before its
        deadline."""
        rows = query.rows
        budget_s: float | None = None
        if not again and application.pressed(now):
            many = len(application.crowd) > MANY
            if many and application.full(now):
                return False
            budget_s = budget(application, query) - kept_s
            found = spacious(application, rows, now, deadline, budget_s, kept_s)
            if found is None and many:
                placed = self._squeeze(application, query, now, deadline, budget_s, kept_s)
                if not placed:
                    application.looked_everywhere(now)
                return placed
        else:
            found = anywhere(application, rows, now, deadline)
        if found is not None:
            option, device = found
            self._book(Batch(application, option, device, query), now)
            return True
        return self._squeeze(application, query, now, deadline, budget_s, kept_s)

    def _squeeze(
        self,
        application: Application,
        query: Query,
        now: float,
        deadline: float,
        budget_s: float | None,
        kept_s: float,
    ) -> bool:
        """Find a place in front of what can wait, or by running what is booked on quicker variants. With ``budget_s``,
        as queries are being refused, only for one that is in more of a hurry than others, with room to grow, and all
        in time by ``kept_s``."""
        if application.full(now):
            return False
        if budget_s is not None and not overtakes(application, deadline):
            application.looked_in_vain(now)
            return False
        found = insertion(application, query.rows, now, deadline, budget_s, kept_s, False) or insertion(
            application, query.rows, now, deadline, budget_s, kept_s, True
        )
        if found is None:
            application.looked_in_vain(now)
            return False
        option, device, position, quicker = found
        for batch, instead in zip(device.booked, quicker or (), strict=bool(quicker)):
            self._change(batch, instead)
        self._book(Batch(application, option, device, query), now, position)
        return True

    @staticmethod
    def _put(batch: Batch, query: Query) -> None:
        """Add a query to a booked batch; its device is to be recounted."""
        query.booking = batch
        batch.queries.append(query)
        batch.rows += query.rows
        if query.deadline < batch.deadline:
            batch.deadline = query.deadline
        if batch.rows >= batch.option.max_rows:
            batch.application.open.remove(batch)

    def _book(self, batch: Batch, now: float, position: int | None = None) -> None:
        """Behind what is booked on the batch's device, or in front of the batch at a position."""
        device = batch.device
        device.booked.insert(len(device.booked) if position is None else position, batch)
        if device.granted or len(device.booked) > 1:
            self.behind[device] = None
        if batch.rows < batch.option.max_rows:
            batch.application.open.append(batch)
        self._recount(device, now)

    def _recount(self, device: Device, now: float) -> None:
        """What is booked on the device has changed."""
        device.recount()
        self._fleet.note(device, now)
        self.touched[device] = None

    def _change(self, batch: Batch, option: Option) -> None:
        """Another variant for a booked batch."""
        batch.option = option
        self._keep_open(batch)

    @staticmethod
    def _keep_open(batch: Batch) -> None:
        """After a change of a booked batch: it is open if it may still grow."""
        known = batch.application.open
        if (batch in known) != (batch.rows < batch.option.max_rows):
            if batch in known:
                known.remove(batch)
            else:
                known.append(batch)
