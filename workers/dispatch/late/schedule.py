"""The schedule: which query waits in which batch, and where. Pure.

A batch waits at a position on its device. Nothing is dispatched here.

Every device whose batches change is left in :attr:`Schedule.changed`, so that dispatching considers it only once all
that happened together is scheduled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..binding import WaitingQuery
from ..options import INF, ServingOption
from .device_groups import DeviceGroups
from .insertion import find_insertion
from .overload import budget_s_of, can_grow, margin_s_of, most_accurate_growable, precedes_some, sustains
from .selection import ROUNDING_S, best_new_batch, best_open_batch, can_follow, most_accurate_in_time, steal_candidate
from .state import ScheduledBatch, ScheduledDevice, ServedClass

#: under overload, up to this many devices of a class are all searched for each query; of more, a sample
SEARCHED_DEVICES = 32


class Schedule:
    """The scheduled batches of all devices.

    Attributes:
        refusals: queries that no device can answer in time; the binding collects them.
        changed: devices to consider, in the order of their changes.
        stealable: devices with a batch that waits behind another one.
    """

    def __init__(self, groups: DeviceGroups) -> None:
        self._groups = groups
        self.refusals: list[WaitingQuery] = []
        self.changed: dict[ScheduledDevice, None] = {}
        self.stealable: dict[ScheduledDevice, None] = {}

    # --- queries -----------------------------------------------------------------------------------------------------

    def reserve(self, served: ServedClass, query: WaitingQuery, now: float, again: bool = False) -> None:
        """Schedule a query, or refuse it.

        Args:
            again: it was scheduled before, and is exempt from admission limits.
        """
        rows, deadline = query.rows, query.deadline + ROUNDING_S
        overloaded = not again and served.overloaded(now)
        margin_s = margin_s_of(served, query, now) if overloaded else 0.0
        deadline -= margin_s
        batch, starving = best_open_batch(served, query, deadline, now, margin_s) if served.open else (None, None)
        utility = -INF if batch is None else batch.option.utility
        if utility < served.best_utility:
            found = best_new_batch(served, query, now, deadline, utility)
            if found is not None:
                option, device = found
                offer = device.group.offers[served]
                overloaded = overloaded or not (again or sustains(offer, device, now, deadline))
                if not overloaded or can_grow(
                    offer, option, device, rows, now, deadline, budget_s_of(served, query) - margin_s
                ):
                    self._add(ScheduledBatch(served, option, device, query), now)
                    return
        # No query is refused for others that may come.
        batch = batch or starving
        if batch is not None:
            if served.narrows(batch):
                batch.served = served
            self._join(batch, query)
            self._recount(batch.device, now)
        elif not self._reserve_elsewhere(served, query, now, deadline + margin_s, overloaded, margin_s):
            if served.serve_late and query.deadline < INF and served.offers:
                query.deadline = INF
                self.reserve(served, query, now, again)
            else:
                # What no idle device could answer either says nothing of load.
                if again or served.answerable(query, now):
                    served.record_refusal(now)
                if again:
                    served.margin.record_refusal(now)
                served.demand.pending -= 1
                self.refuse([query])

    def reserve_all(self, arrivals: Sequence[tuple[ServedClass | None, WaitingQuery]], now: float) -> None:
        """Schedule queries that arrived together; None: their application is unknown."""
        last: ScheduledBatch | None = None
        # Recounted only once all that follow each other have joined.
        outdated: ScheduledDevice | None = None
        for served, query in arrivals:
            if served is None:
                self.refuse([query])
            elif (
                last is None
                or last.served is not served
                or served.margin_fraction(now)
                or not can_follow(last, query, now)
            ):
                if outdated is not None:
                    self._recount(outdated, now)
                    outdated = None
                self.reserve(served, query, now)
                last = query.reservation
            else:
                self._join(last, query)
                outdated = last.device
        if outdated is not None:
            self._recount(outdated, now)

    def reschedule(self, queries: Iterable[WaitingQuery], now: float) -> None:
        """Schedule queries that were scheduled before, the most urgent first."""
        for query in sorted(queries, key=lambda query: query.deadline):
            demand = query.reservation.served.demand if query.reservation is not None else None
            served = self._groups.find_class(query.query_class, now)
            query.reservation = None
            if served is None:
                self.refuse([query])
            else:
                if served.demand is not demand:
                    served.demand.pending += 1
                self.reserve(served, query, now, again=True)

    def withdraw(self, query: WaitingQuery, now: float) -> None:
        """Forget a query; nothing happens unless it waits."""
        batch: ScheduledBatch | None = query.reservation
        if batch is None or batch.dispatched:
            return
        query.reservation = None
        batch.served.demand.pending -= 1
        if len(batch.queries) == 1:
            self.remove(batch, now)
        else:
            batch.queries.remove(query)
            batch.rows -= query.rows
            batch.deadline = min(other.deadline for other in batch.queries)
            self._update_open(batch)
            self._recount(batch.device, now)

    def refuse(self, queries: Iterable[WaitingQuery]) -> None:
        """Refuse queries that are not scheduled."""
        for query in queries:
            query.reservation = None
            self.refusals.append(query)

    # --- devices -----------------------------------------------------------------------------------------------------

    def check(self, device: ScheduledDevice, now: float) -> None:
        """Downgrade a delayed device's late batches, or reschedule their queries.

        A downgraded batch gets a faster option with which it is in time.
        """
        end = now + device.starts_in(now)
        displaced: list[WaitingQuery] = []
        late = False
        for batch in list(device.scheduled):
            seconds = device.seconds(batch.option, batch.rows)
            if end + seconds > batch.deadline + ROUNDING_S:
                late = True
                options = device.option_sets.get(batch.served.query_class)
                latest = batch.deadline + ROUNDING_S
                option = (
                    options.best(batch.rows, len(batch.queries), latest - end, device.corrections, 0)
                    if options
                    else None
                )
                # A difference rounds otherwise than the sum by which it is late.
                if option is None or end + device.seconds(option, batch.rows) > latest:
                    self.remove(batch, now)
                    displaced += batch.queries
                    continue
                self._change_option(batch, option)
                seconds = device.seconds(option, batch.rows)
            end += seconds
        if late:
            self._recount(device, now)
            self.reschedule(displaced, now)

    def evacuate(self, device: ScheduledDevice, now: float) -> None:
        """Reschedule all batches of a device."""
        displaced = []
        for batch in list(device.scheduled):
            self.remove(batch, now)
            displaced += batch.queries
        self.stealable.pop(device, None)
        self.changed[device] = None
        self.reschedule(displaced, now)

    def steal(self, device: ScheduledDevice, now: float) -> None:
        """Move a batch to an idle device, if it is no less accurate there.

        The batch is one that waits behind others.
        """
        if not device.up or device.loading:
            return
        found = steal_candidate(device, self.stealable, now)
        if found is not None:
            option, batch = found
            self.remove(batch, now)
            batch.option, batch.device = option, device
            self._add(batch, now, 0)

    def take_first(self, batch: ScheduledBatch) -> None:
        """Take a device's first batch off the schedule for dispatch.

        An update of the device must follow.
        """
        device = batch.device
        del device.scheduled[0]
        device.recount()
        if batch in batch.served.open:
            batch.served.open.remove(batch)

    def remove(self, batch: ScheduledBatch, now: float) -> None:
        """Take a batch off the schedule; its queries are the caller's again."""
        batch.device.scheduled.remove(batch)
        self._recount(batch.device, now)
        if batch in batch.served.open:
            batch.served.open.remove(batch)

    # --- batches -----------------------------------------------------------------------------------------------------

    def _reserve_elsewhere(
        self, served: ServedClass, query: WaitingQuery, now: float, deadline: float, overloaded: bool, margin_s: float
    ) -> bool:
        """Search all devices for a query's place, and return whether it has one.

        The query fits neither an open batch nor the first device of any group.

        Args:
            overloaded: new batches need room to grow.
        """
        budget_s: float | None = None
        if overloaded:
            many = len(served.candidates) > SEARCHED_DEVICES
            if many and served.full(now):
                return False
            budget_s = budget_s_of(served, query) - margin_s
            found = most_accurate_growable(served, query.rows, now, deadline, budget_s, margin_s)
            if found is None and many:
                inserted = self._insert(served, query, now, deadline, budget_s, margin_s)
                if not inserted:
                    served.search_exhausted(now)
                return inserted
        else:
            found = most_accurate_in_time(served, query.rows, now, deadline)
        if found is not None:
            option, device = found
            self._add(ScheduledBatch(served, option, device, query), now)
            return True
        return self._insert(served, query, now, deadline, budget_s, margin_s)

    def _insert(
        self,
        served: ServedClass,
        query: WaitingQuery,
        now: float,
        deadline: float,
        budget_s: float | None,
        margin_s: float,
    ) -> bool:
        """Insert a query before scheduled batches, and return whether that worked.

        These batches can wait, or are downgraded to faster options first.

        Args:
            budget_s: given under overload; then only a query that is more urgent than others is inserted, with room to
                grow and ``margin_s`` to spare.
        """
        if served.full(now):
            return False
        if budget_s is not None and not precedes_some(served, deadline):
            served.search_failed(now)
            return False
        found = find_insertion(served, query.rows, now, deadline, budget_s, margin_s, False) or find_insertion(
            served, query.rows, now, deadline, budget_s, margin_s, True
        )
        if found is None:
            served.search_failed(now)
            return False
        option, device, position, downgrades = found
        for batch, faster in zip(device.scheduled, downgrades or (), strict=bool(downgrades)):
            self._change_option(batch, faster)
        self._add(ScheduledBatch(served, option, device, query), now, position)
        return True

    def _join(self, batch: ScheduledBatch, query: WaitingQuery) -> None:
        """Add a query to a scheduled batch; a recount of its device must follow."""
        query.reservation = batch
        batch.queries.append(query)
        batch.rows += query.rows
        if query.deadline < batch.deadline:
            batch.deadline = query.deadline
        if batch.rows >= batch.option.max_rows:
            batch.served.open.remove(batch)

    def _add(self, batch: ScheduledBatch, now: float, position: int | None = None) -> None:
        """Schedule a batch at a position on its device; None: last."""
        device = batch.device
        device.scheduled.insert(len(device.scheduled) if position is None else position, batch)
        if device.dispatched or len(device.scheduled) > 1:
            self.stealable[device] = None
        if batch.rows < batch.option.max_rows:
            batch.served.open.append(batch)
        self._recount(device, now)

    def _recount(self, device: ScheduledDevice, now: float) -> None:
        """After any change of a device's scheduled batches."""
        device.recount()
        self._groups.update(device, now)
        self.changed[device] = None

    def _change_option(self, batch: ScheduledBatch, option: ServingOption) -> None:
        batch.option = option
        self._update_open(batch)

    @staticmethod
    def _update_open(batch: ScheduledBatch) -> None:
        """A scheduled batch is open while it can take more rows."""
        open = batch.served.open
        if (batch in open) != (batch.rows < batch.option.max_rows):
            if batch in open:
                open.remove(batch)
            else:
                open.append(batch)
