"""The schedule: which query waits in which batch, and where. Pure.

Every device whose batches change is left in :attr:`Schedule.changed`: dispatching considers it once all that happened
together is scheduled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..binding import WaitingQuery
from ..options import INF, LEVELS, ServingOption
from .device_groups import DeviceGroups
from .selection import (
    ROUNDING_S,
    best_new_batch,
    best_open_batch,
    can_follow,
    first_device,
    most_accurate_in_time,
    sustains,
)
from .state import OVERLOAD_S, ScheduledBatch, ScheduledDevice, ServedClass


class Schedule:
    """The scheduled batches of all devices.

    Attributes:
        refusals: queries that no device can answer in time; the binding collects them.
        changed: devices to consider, in the order of their changes.
    """

    def __init__(self, groups: DeviceGroups) -> None:
        self._groups = groups
        self.refusals: list[WaitingQuery] = []
        self.changed: dict[ScheduledDevice, None] = {}

    # --- queries -----------------------------------------------------------------------------------------------------

    def reserve(self, served: ServedClass, query: WaitingQuery, now: float, again: bool = False) -> None:
        """Schedule or refuse it; ``again``: exempt from admission limits."""
        rows, deadline = query.rows, query.deadline + ROUNDING_S
        crowded = not again and now - served.refused_at < OVERLOAD_S
        if crowded:
            deadline -= served.margin(now) * min(query.deadline - query.arrived, served.slo_s)
        batch, starving = best_open_batch(served, query, deadline, now) if served.open else (None, None)
        utility = -INF if batch is None else batch.option.utility
        if utility < served.best_utility:
            place = best_new_batch(served, query, now, deadline, utility)
            if place is not None:
                option, device = place
                if again or sustains(device.group.offers[served], device, now, deadline):
                    self._add(ScheduledBatch(served, option, device, query), now)
                    return
                crowded = True
        # No query is refused for others that may come.
        batch = batch or starving
        if batch is not None:
            if served.narrows(batch):
                batch.served = served
            self._join(batch, query)
            self._recount(batch.device, now)
            return
        # It fits neither an open batch nor the first device of any group: all are searched.
        place = most_accurate_in_time(served, rows, now, deadline, sustaining=not again)
        if place is not None:
            option, device = place
            self._add(ScheduledBatch(served, option, device, query), now)
        elif not crowded and self._insert(served, query, now, deadline):
            pass
        elif served.serve_late and query.deadline < INF and served.offers:
            query.deadline = INF
            self.reserve(served, query, now, again)
        else:
            # What no idle device could answer either says nothing of load.
            if again or served.answerable(query, now):
                served.record_refusal(now)
            if again:
                served.record_late_refusal(now)
            served.demand.pending -= 1
            self.refuse([query])

    def reserve_all(self, arrivals: Sequence[tuple[ServedClass | None, WaitingQuery]], now: float) -> None:
        last: ScheduledBatch | None = None
        # Recounted only once all that follow each other have joined.
        outdated: ScheduledDevice | None = None
        for served, query in arrivals:
            if served is None:
                self.refuse([query])
            elif last is None or last.served is not served or not can_follow(last, query, now):
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
        for query in queries:
            query.reservation = None
            self.refusals.append(query)

    # --- devices -----------------------------------------------------------------------------------------------------

    def check(self, device: ScheduledDevice, now: float) -> None:
        """Downgrade a delayed device's late batches, or reschedule their queries."""
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

    def displace(self, batches: Sequence[ScheduledBatch], now: float) -> None:
        """Schedule their queries again."""
        queries = [query for batch in batches for query in batch.queries]
        for batch in list(batches):
            self.remove(batch, now)
        self.reschedule(queries, now)

    def take_first(self, batch: ScheduledBatch) -> None:
        """Take it off for dispatch; an update of the device must follow."""
        device = batch.device
        del device.scheduled[0]
        if device.scheduled:
            device.recount()
        else:
            device.scheduled_s = device.scheduled_slos = 0.0
        if batch in batch.served.open:
            batch.served.open.remove(batch)

    def remove(self, batch: ScheduledBatch, now: float) -> None:
        batch.device.scheduled.remove(batch)
        self._recount(batch.device, now)
        if batch in batch.served.open:
            batch.served.open.remove(batch)

    # --- batches -----------------------------------------------------------------------------------------------------

    def _insert(self, served: ServedClass, query: WaitingQuery, now: float, deadline: float) -> bool:
        """Insert a query that would be late behind all others; False: nowhere.

        On the first device of each offer, as far back as it is in time, with the fastest options for what is scheduled
        there: each batch gets its option anew when it is dispatched.
        """
        for offer in served.offers:
            device, _ = first_device(offer, now)
            if device is None or not device.scheduled:
                continue
            fastest = [_fastest(batch) for batch in device.scheduled]
            points = device.insertion_points(now, fastest)
            for position in range(len(points) - 1, -1, -1):
                start, slack_s = points[position]
                within_s = min(deadline - start, slack_s)
                option = offer.option_set.best(query.rows, 1, within_s, device.corrections, 0)
                if option is not None:
                    for batch, faster in zip(device.scheduled, fastest, strict=True):
                        self._change_option(batch, faster)
                    self._add(ScheduledBatch(served, option, device, query), now, position)
                    return True
        return False

    def _join(self, batch: ScheduledBatch, query: WaitingQuery) -> None:
        query.reservation = batch
        batch.queries.append(query)
        batch.rows += query.rows
        if query.deadline < batch.deadline:
            batch.deadline = query.deadline
        if batch.rows >= batch.option.max_rows:
            batch.served.open.remove(batch)

    def _add(self, batch: ScheduledBatch, now: float, position: int | None = None) -> None:
        device, served = batch.device, batch.served
        if batch.rows < batch.option.max_rows:
            served.open.append(batch)
        if position is not None:
            device.scheduled.insert(position, batch)
            self._recount(device, now)
            return
        device.scheduled.append(batch)
        seconds = device.seconds(batch.option, batch.rows)
        device.scheduled_s += seconds
        device.scheduled_slos += seconds / served.slo_s
        self._groups.update(device, now)
        self.changed[device] = None

    def _recount(self, device: ScheduledDevice, now: float) -> None:
        device.recount()
        self._groups.update(device, now)
        self.changed[device] = None

    def _change_option(self, batch: ScheduledBatch, option: ServingOption) -> None:
        batch.option = option
        self._update_open(batch)

    @staticmethod
    def _update_open(batch: ScheduledBatch) -> None:
        open = batch.served.open
        if (batch in open) != (batch.rows < batch.option.max_rows):
            if batch in open:
                open.remove(batch)
            else:
                open.append(batch)


def _fastest(batch: ScheduledBatch) -> ServingOption:
    device = batch.device
    options = device.option_sets[batch.served.query_class]
    return options.best(batch.rows, len(batch.queries), INF, device.corrections, LEVELS - 1) or batch.option
