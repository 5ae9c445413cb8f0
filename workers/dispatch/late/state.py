"""State of late binding: batches, devices, device groups and query classes. Pure.

Times are the core's: a batch ends when its answers are expected there, so a round trip counts once for a batch on an
idle device, and not at all where batches follow each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple

from ..binding import QueryClass, ServiceTerms, WaitingQuery
from ..latency_correction import LatencyCorrections
from ..options import INF, LEVELS, OptionSet, ServingOption
from .interarrival import ArrivalRate, InterarrivalEstimator

#: seconds after a refusal in which each further one reserves one device more for the application
RESERVE_S = 10.0
#: seconds of overload after a refusal, in which the admission margin holds and no query is inserted
OVERLOAD_S = 1.0
#: the admission margin, in parts of a query's time: its rise at each late refusal, its largest value, and its decay a
#: second
MARGIN_STEP, LARGEST_MARGIN, MARGIN_DECAY_PER_S = 0.02, 0.25, 0.005
#: rise of congestion with each SLO that queries wait
SLOPE = 0.3
#: the backlog that equals its pressure: smaller ones have a higher pressure, larger ones a lower
EVEN = 0.58
#: seconds for which, at least, the peak of pending queries is kept
PEAK_WINDOW_S = 0.05


class ScheduledBatch:
    """Queries that run together: first scheduled, then dispatched.

    A dispatched batch no longer changes. Implements :class:`..binding.Dispatch`.

    Attributes:
        deadline: the earliest of its queries.
        ready_at: when it could first have been dispatched; inf: not yet.
    """

    def __init__(
        self, served: ServedClass, option: ServingOption, device: ScheduledDevice, query: WaitingQuery
    ) -> None:
        self.served = served
        self.option = option
        self.device = device
        self.device_name = device.name
        self.application_name = served.query_class.application
        self.queries = [query]
        self.key = query.key
        self.rows = query.rows
        self.deadline = query.deadline
        self.dispatched = False
        self.dispatched_at = 0.0
        self.end = 0.0
        self.ready_at = INF
        query.reservation = self


class ScheduledDevice:
    """One device with its schedule. Implements :class:`..feedback.CorrectedDevice`.

    Attributes:
        option_sets: by class; ``offered``: those of unrestricted classes, as they came.
        group: None while it takes no queries; ``group_key``: equal for devices with the same option sets.
        away: others' work holds it, which does not count as pressure; ``busy_until``: when that ends.
        free_at: when all dispatched batches are expected back; in the past: idle.
        scheduled_slos: ``scheduled_s``, each batch in SLOs of its class.
        ready_at: when all dispatched and scheduled batches will have run.
        dependents: (class, seconds) that depend on this device, and how long their next query could wait here.
        counted, counted_per_s, counted_until, counted_slos: its part of its group's aggregates.
    """

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.option_sets: dict[QueryClass, OptionSet] = {}
        self.offered: Mapping[QueryClass, OptionSet] = {}
        self.group: DeviceGroup | None = None
        self.group_key: frozenset[tuple[QueryClass, int]] = frozenset()
        self.up = False
        self.away = False
        self.busy_until = -INF
        self.rtt_s = 0.0
        self.free_at = -INF
        self.scheduled: list[ScheduledBatch] = []
        self.scheduled_s = self.scheduled_slos = 0.0
        self.ready_at = -INF
        self.dispatched: list[ScheduledBatch] = []
        self.dependents: list[tuple[ServedClass, float]] = []
        self.corrections = LatencyCorrections()
        self.wake_at = INF
        self.measured_at = self.decay_at = self.backoff_until = -INF
        self.backoff_s = 0.0
        self.counted = 0
        self.counted_per_s = self.counted_until = self.counted_slos = 0.0

    def set_options(self, option_sets: dict[QueryClass, OptionSet]) -> None:
        """Replace the option sets; equal ones must be one object."""
        self.option_sets = option_sets
        self.group_key = frozenset([(query_class, id(options)) for query_class, options in option_sets.items()])

    def starts_in(self, now: float) -> float:
        """Seconds until a batch that takes no time would end."""
        wait_s = self.free_at - now
        return wait_s if wait_s > self.rtt_s else self.rtt_s

    def seconds(self, option: ServingOption, rows: int) -> float:
        by_rows = option.by_rows
        # Most batches are in the table: decisions are taken per query, and a call costs more than the look-up.
        return (by_rows[rows] if rows < len(by_rows) else option.seconds(rows)) * self.corrections[option]

    def insertion_points(self, now: float, options: list[ServingOption] | None = None) -> list[tuple[float, float]]:
        """Return when a batch at each position, the last included, would start, and the slack of those behind, seconds.

        Args:
            options: to assume for the scheduled batches; None: their own.
        """
        starts, end = [now + self.starts_in(now)], now + self.starts_in(now)
        for i, batch in enumerate(self.scheduled):
            end += self.seconds(batch.option if options is None else options[i], batch.rows)
            starts.append(end)
        slack, points = INF, [(end, INF)]
        for i in range(len(self.scheduled) - 1, -1, -1):
            slack = min(slack, self.scheduled[i].deadline - starts[i + 1])
            points.append((starts[i], slack))
        points.reverse()
        return points

    def recount(self) -> None:
        total_s = slos = 0.0
        for batch in self.scheduled:
            seconds = self.seconds(batch.option, batch.rows)
            total_s += seconds
            slos += seconds / batch.served.slo_s
        self.scheduled_s, self.scheduled_slos = total_s, slos


class DeviceGroup:
    """Devices with equal option sets, and aggregates over those that are not away.

    Attributes:
        per_s_sum: sum over the busy ones of 1 / SLO of the last batch that each was dispatched.
        until_sum: sum of the times at which they will be free, each divided by that SLO.
        idle: devices with nothing to do, the longest idle first.
    """

    def __init__(self) -> None:
        self.devices: list[ScheduledDevice] = []
        self.offers: dict[ServedClass, ClassOffer] = {}
        self.idle: dict[ScheduledDevice, None] = {}
        self.count = 0
        self.busy = 0
        self.per_s_sum = 0.0
        self.until_sum = 0.0
        self.scheduled_slos = 0.0


class DemandNeeds(NamedTuple):
    """What the demand needs of devices (see :mod:`.congestion`).

    ``pressure``: the sustaining one, 0: the most accurate options carry the demand; ``batch_s``: seconds of the
    sustaining batch; ``wait_s``: target wait.
    """

    pressure: float = 0.0
    batch_s: float = 0.0
    wait_s: float = 0.0


class UsualPressure:
    """The mean pressure that queries met lately, below which the price of time does not fall.

    So it is about the same for all queries of a burst, also for its first ones, which find devices idle. ``total`` and
    ``queries`` fade; ``mean`` is that of the latest look, of less than one query as if more had met no pressure.
    """

    __slots__ = ("mean", "queries", "total")

    def __init__(self) -> None:
        self.total = self.queries = self.mean = 0.0

    def look(self, kept: float) -> None:
        self.total *= kept
        self.queries *= kept
        self.mean = self.total / max(1.0, self.queries)


class ClassOffer:
    """The device groups that offer a class the same option set; ``before``: the offer that this one follows."""

    def __init__(self, served: ServedClass, option_set: OptionSet, before: ClassOffer | None = None) -> None:
        self.served = served
        self.option_set = option_set
        self.groups: list[DeviceGroup] = []
        self.needs = DemandNeeds() if before is None else before.needs
        self.usual = UsualPressure() if before is None else before.usual

    def devices(self) -> Iterator[ScheduledDevice]:
        for group in self.groups:
            yield from group.devices

    def pressure(self, now: float, without: ScheduledDevice | None = None) -> float:
        """Return the pressure of the backlog, 0 to 1; 1 if there are no devices.

        The backlog is the part of the SLO for which these devices are busy or scheduled, at most the part of them that
        is not idle. Each batch counts by the SLO of its own class: a device's time has one price for all that share it.
        Pressure rises more slowly in between, so that all queries of a burst find about the same price.

        Args:
            without: leave out that device's schedule.
        """
        slos, count, idle = 0.0, 0, 0
        for group in self.groups:
            slos += group.until_sum - group.per_s_sum * now + group.scheduled_slos
            count += group.count or len(group.devices)
            idle += len(group.idle)
        if without is not None:
            slos -= without.counted_slos
            if not without.counted:
                idle += 1
        if not count:
            return 1.0
        backlog, busy = slos / count, 1.0 - idle / count
        backlog = 0.0 if backlog < 0.0 else busy if backlog > busy else backlog
        return backlog + backlog * (1.0 - backlog) * (EVEN - backlog)

    def level(self, pressure: float, waited_s: float) -> int:
        """Return the level of these devices' price of time: that of the highest pressure.

        There are the present one, the usual one, and congestion: the pressure of the demand's needs at the target wait,
        which follows the wait gently, so that devices do not alternate between the most accurate and the quickest
        options. ``waited_s``: how long the query has waited, or waits for the offer's first device.
        """
        served, needs = self.served, self.needs
        if self.usual.mean > pressure:
            pressure = self.usual.mean
        if needs.pressure:
            congestion = needs.pressure + SLOPE * (waited_s - needs.wait_s) / served.slo_s
            if congestion > pressure:
                pressure = congestion
        return int(pressure * LEVELS) if pressure < 1.0 else LEVELS - 1


class Demand:
    """Arrivals of an application's size class, whichever variants its queries permit.

    Attributes:
        pending: queries that are scheduled or dispatched.
        peak_pending: the most at once, over the last :data:`PEAK_WINDOW_S` to twice that: a bound on the clients that
            wait for an answer before they ask again.
    """

    def __init__(self) -> None:
        self.interarrival = InterarrivalEstimator()
        self.rate = ArrivalRate()
        self.open: list[ScheduledBatch] = []
        self.pending = self.peak_pending = 0
        self._peak_before = self._peak_since = 0
        self._window_at = -INF

    def arrived(self, count: int, rows: int, now: float) -> None:
        self.rate.rows += rows
        self.interarrival.arrived(count, now)
        self.pending += count
        if now - self._window_at > PEAK_WINDOW_S:
            self._peak_before = self._peak_since if now - self._window_at <= 2.0 * PEAK_WINDOW_S else 0
            self._peak_since, self._window_at = 0, now
        if self.pending > self._peak_since:
            self._peak_since = self.pending
        self.peak_pending = self._peak_since if self._peak_since > self._peak_before else self._peak_before


class ServedClass:
    """The queries of one class, and the devices that can run them.

    Attributes:
        demand: shared by classes that differ in ``permitted`` alone.
        candidates: devices that can run the class, with their offers.
        exclusive_devices: devices on which the class depends, with the seconds in which a new query must start there;
            empty if it has many devices or time.
        reserve: of these, how many others must stay able to take its next query.
    """

    def __init__(self, query_class: QueryClass, terms: ServiceTerms, demand: Demand | None = None) -> None:
        self.query_class = query_class
        self.permitted = query_class.permitted
        self.slo_s = terms.slo_s
        self.serve_late = terms.serve_late
        self.demand = Demand() if demand is None else demand
        self.open = self.demand.open
        self.offers: list[ClassOffer] = []
        self.best_utility = -INF
        self.candidates: list[tuple[ClassOffer, ScheduledDevice]] = []
        self.exclusive_devices: list[tuple[ScheduledDevice, float]] = []
        self.reserve = 1
        self.refused_at = -INF
        self._margin, self._margin_at = 0.0, -INF

    # --- restrictions ------------------------------------------------------------------------------------------------

    def may_share(self, batch: ScheduledBatch) -> bool:
        mine, theirs = self.permitted, batch.served.permitted
        if mine is None:
            return True
        return batch.option.variant in mine and (theirs is None or mine <= theirs or theirs <= mine)

    def narrows(self, batch: ScheduledBatch) -> bool:
        mine, theirs = self.permitted, batch.served.permitted
        return mine is not None and (theirs is None or mine < theirs)

    def answerable(self, query: WaitingQuery, now: float) -> bool:
        within_s = query.deadline - now
        return any([offer.option_set.least(query.rows) <= within_s for offer in self.offers])

    # --- overload ----------------------------------------------------------------------------------------------------

    def margin(self, now: float) -> float:
        """The part of a query's time in which busy devices are not scheduled.

        A device that is a little slower than expected refuses its last queries long after they arrived, when their
        clients can no longer ask elsewhere. Where devices keep their times there is none.
        """
        return max(0.0, self._margin - MARGIN_DECAY_PER_S * (now - self._margin_at)) if self._margin else 0.0

    def record_late_refusal(self, now: float) -> None:
        """A scheduled query was refused; refusals of one moment count once: they have one cause."""
        if now > self._margin_at:
            self._margin, self._margin_at = min(self.margin(now) + MARGIN_STEP, LARGEST_MARGIN), now

    def record_refusal(self, now: float) -> None:
        """A query was refused: reserve more devices for a while."""
        reserve = self.reserve + 1 if now - self.refused_at < RESERVE_S else 2
        self.reserve = min(reserve, max(1, len(self.exclusive_devices) // 2))
        self.refused_at = now
