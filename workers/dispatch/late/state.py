"""What the dispatcher knows: batches, devices as it sees them, and applications. Pure.

Times are the gateway's: a batch "ends" when its answers are expected there, so that the way there and back counts once
for a batch on an idle device and not at all where batches follow each other.

Devices with the same menus for every application are one *kind*; the kinds that offer an application the same menu are
one of its *groups*. A kind keeps sums over its devices, so that the pressure on a group, and an idle device of it, are
found without looking at every device. (Each of these knows others of them, hence one file.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from ..binding import Query, QueryClass, Terms
from ..latency_correction import Factors
from ..options import INF, Menu, Option
from .interarrival import Gaps
from .margin import Leeway

#: for so many seconds after a refusal, one device more is kept able for the application each time
RESERVE_S = 10.0
#: devices that a query which fits nowhere looks at for a place between others
LOOKS = 8
#: for so many seconds after a refusal batches are opened only with room to grow (see :mod:`.admission`)
HOLD_S = 1.0
#: how much an arrival counts in the running share of queries that are refused, and of what share on a device's time is
#: worth the most
REFUSED_WEIGHT = 0.02
REFUSED_MOST = 0.125
#: once no device had one, none is looked for again for this part of the SLO: overload must not cost time as well
FULL = 0.01
#: for how long, in seconds, it is remembered at least how many queries were under way at once
REMEMBERED_S = 0.05


class Batch:
    """Queries that shall run together: booked (``granted`` False), then granted and no longer changed.

    ``key``: its queries'. ``deadline``: the earliest of theirs. ``end``: when its answers are expected, once granted.
    ``ready_at``: since when it could have been; inf: not yet.
    """

    def __init__(self, application: Application, option: Option, device: Device, query: Query) -> None:
        self.application = application
        self.application_name = application.query_class.application
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

    @property
    def device_name(self) -> Hashable:
        """See :class:`..binding.Dispatch`."""
        return self.device.name


class Device:
    """One device. ``menus`` by class; ``offers``: those of unrestricted classes, as they came. ``free_at``: when all
    that is granted is expected back (in the past: idle).
    ``booked_s``: seconds of what is booked. ``way_s``: there and back. ``away``: it does something else until
    ``free_at`` (a load, say), which is no sign of pressure. ``kind``: the fleet's, None while it takes no queries."""

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.menus: dict[QueryClass, Menu] = {}
        self.offers: Mapping[QueryClass, Menu] = {}
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
        total, factors = 0.0, self.factors
        for batch in self.booked:
            total += batch.option.seconds(batch.rows) * factors[batch.option]
        self.booked_s = total


class Kind:
    """Devices with the same menus. ``groups``: theirs, by application. Of those that are not away: ``count``, how many
    are ``busy``, the sum ``until_sum`` of when these will be free, and ``booked_s``. ``idle``: those with nothing to
    do, the longest idle first."""

    def __init__(self) -> None:
        self.devices: list[Device] = []
        self.groups: dict[QueryClass, Group] = {}
        self.idle: dict[Device, None] = {}
        self.count = 0
        self.busy = 0
        self.until_sum = 0.0
        self.booked_s = 0.0


class Group:
    """The devices that offer an application the same menu."""

    def __init__(self, menu: Menu) -> None:
        self.menu = menu
        self.kinds: list[Kind] = []

    def devices(self) -> Iterator[Device]:
        for kind in self.kinds:
            yield from kind.devices

    def pressure(self, now: float, slo_s: float, besides: Device | None = None) -> float:
        """The part of the SLO for which these devices are booked (0 to 1); ``besides``: but for what is booked on that
        one."""
        total, count, idle = 0.0, 0, 0
        for kind in self.kinds:
            total += kind.until_sum - kind.busy * now + kind.booked_s
            count += kind.count
            idle += len(kind.idle)
        if besides is not None:
            total -= besides.counted_booked_s
            if not besides.counted:
                idle += 1
        if not count:
            return 1.0
        # Not more than the part of them that is busy, however long they are.
        pressure, busy = total / (count * slo_s), 1.0 - idle / count
        return 0.0 if pressure < 0.0 else busy if pressure > busy else pressure


class Demand:
    """How the queries of an application's size class arrive, whichever variants they permit.

    Attributes:
        under_way: queries that are booked or granted.
        most_under_way: the most at once, over the last :data:`REMEMBERED_S` to twice that. Clients that wait for an
            answer before they ask again are no more than that.
        open: batches that may still grow.
    """

    def __init__(self) -> None:
        self.gaps = Gaps()
        self.open: list[Batch] = []
        self.under_way = self.most_under_way = 0
        self._most_before = self._most_since = 0
        self._window_at = -INF

    def arrived(self, count: int, now: float) -> None:
        """So many queries arrived at once."""
        self.gaps.arrived(count, now)
        self.under_way += count
        if now - self._window_at > REMEMBERED_S:
            self._most_before = self._most_since if now - self._window_at <= 2.0 * REMEMBERED_S else 0
            self._most_since, self._window_at = 0, now
        if self.under_way > self._most_since:
            self._most_since = self.under_way
        earlier, lately = self._most_before, self._most_since
        self.most_under_way = earlier if earlier > lately else lately


class Application:
    """The queries of one class, with the devices that can run them. ``serve_late``: late queries are answered rather
    than refused. ``demand``: shared by all classes that differ in ``permitted`` alone.
    ``hosts``: where it depends on few or cannot wait, its devices, with the seconds after which a query that has just
    arrived must start there; ``reserve`` of them, besides the one in question, are to stay able to take its next query.
    ``crowd``: all its devices with their groups, and ``looked_at``, where the next look at some begins."""

    def __init__(self, query_class: QueryClass, terms: Terms, demand: Demand | None = None) -> None:
        self.query_class = query_class
        self.permitted = query_class.permitted
        self.slo_s = terms.slo_s
        self.serve_late = terms.serve_late
        self.groups: list[Group] = []
        self.hosts: list[tuple[Device, float]] = []
        self.crowd: list[tuple[Group, Device]] = []
        self.reserve = 1
        self.refused_at = -INF
        #: the part of its queries that is refused, as a running mean over arrivals
        self.refused_share = 0.0
        self.leeway = Leeway()
        self.looked_at = 0
        self._vain, self._vain_since = 0, -INF
        self.best_worth = -INF
        self.demand = Demand() if demand is None else demand
        self.open = self.demand.open

    def arrived(self, count: int, now: float) -> None:
        """So many queries arrived at once."""
        if self.refused_share:
            self.refused_share -= min(REFUSED_WEIGHT * count, 1.0) * self.refused_share
        self.demand.arrived(count, now)

    def may_share(self, batch: Batch) -> bool:
        """Whether a query of this class may join a batch of another one of the same application and size."""
        mine, theirs = self.permitted, batch.application.permitted
        if mine is None:
            return True
        return batch.option.variant in mine and (theirs is None or mine <= theirs or theirs <= mine)

    def narrows(self, batch: Batch) -> bool:
        """Whether a batch that a query of this class joins is restricted to fewer variants by it."""
        mine, theirs = self.permitted, batch.application.permitted
        return mine is not None and (theirs is None or mine < theirs)

    def pressed(self, now: float) -> bool:
        """Whether a query was refused of late."""
        return now - self.refused_at < HOLD_S

    def kept(self, now: float) -> float:
        """The part of queries' time for which busy devices are not booked now (see :mod:`.margin`)."""
        return self.leeway.part(now) if now - self.refused_at < HOLD_S else 0.0

    def felt(self, pressure: float, now: float) -> float:
        """The pressure, or what refused queries say of it where that is more: a device that has slipped may have hardly
        anything booked in the midst of overload, and its time is not to go to a run that costs more for that."""
        if now - self.refused_at >= HOLD_S:
            return pressure
        share = self.refused_share / REFUSED_MOST
        return pressure if pressure > share else share if share < 1.0 else 1.0

    def bookable_s(self, now: float) -> float:
        """The part of the SLO for which devices are booked at most: to be full is to be booked for that."""
        return self.slo_s * (1.0 - self.kept(now)) if now - self.refused_at < HOLD_S else self.slo_s

    def full(self, now: float) -> bool:
        """Whether queries have looked at all devices of late for a place between others, and in vain."""
        return self._vain * LOOKS >= len(self.crowd) and now - self._vain_since < FULL * self.slo_s

    def looked_in_vain(self, now: float) -> None:
        """A query found no place between others on the devices that it looked at."""
        if now - self._vain_since >= FULL * self.slo_s:
            self._vain, self._vain_since = 0, now
        self._vain += 1

    def looked_everywhere(self, now: float) -> None:
        """A query found no place on any device."""
        self._vain, self._vain_since = len(self.crowd), now

    def missed(self, now: float) -> None:
        """A query was refused: others are to leave it more devices for a while."""
        reserve = self.reserve + 1 if now - self.refused_at < RESERVE_S else 2
        self.reserve = min(reserve, max(1, len(self.hosts) // 2))
        self.refused_at = now
        self.refused_share += REFUSED_WEIGHT * (1.0 - self.refused_share)
