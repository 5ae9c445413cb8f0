"""Where a query that arrives should wait: a search over what is booked and what could be. Pure; books
nothing."""

from __future__ import annotations

from ..latency_correction import SLOW
from ..options import INF, LEVELS, Option
from .state import RESERVE_S, Application, Batch, Device, Group, Kind, Query

#: batches that may grow which a query is tried on: far into overload there are hundreds, on which nothing fits
JOIN_LOOKS = 16
#: devices that an idle one looks at for work to take over
STEAL_LOOKS = 8
#: sums that are kept up to date differ from those made anew by less
FULL_MARGIN_S = 1e-6
#: an answer may be this much after its deadline and still count as in time: rounding
ROUNDING_S = 1e-9


def joinable(application: Application, query: Query, deadline: float, now: float, kept_s: float = 0.0) -> Batch | None:
    """The most accurate batch of the query's kind that is still being formed and can take its rows, with everything in
    time; the others' ``kept_s`` seconds before their deadlines."""
    rows, key = query.rows, query.key
    found: Batch | None = None
    worth = -INF
    looks = JOIN_LOOKS
    # The newest first: those before them could not take the queries that came in between.
    for batch in reversed(application.open):
        if (
            batch.option.worth > worth
            and batch.key == key
            and (batch.application is application or application.may_share(batch))
        ):
            if _can_join(batch, rows, deadline, now, kept_s):
                found, worth = batch, batch.option.worth
            looks -= 1
            if not looks:
                break
    return found


def joins(batch: Batch, query: Query, now: float) -> bool:
    """Whether the query can join the batch that the one before it is in, without a look at any other: the most accurate
    there is, and the only one on its device."""
    device, option, rows = batch.device, batch.option, batch.rows + query.rows
    if rows > option.max_rows or batch.granted or batch.key != query.key or len(device.booked) != 1:
        return False
    if option.worth < batch.application.best_worth:
        return False
    deadline = query.deadline if query.deadline < batch.deadline else batch.deadline
    wait = device.free_at - now
    end = now + (wait if wait > device.way_s else device.way_s)
    return end + option.by_rows[rows] * device.factors[option] <= deadline + ROUNDING_S


def _can_join(batch: Batch, rows: int, deadline: float, now: float, kept_s: float) -> bool:
    grown = batch.rows + rows
    option = batch.option
    if grown > option.max_rows:
        return False
    device = batch.device
    if deadline > batch.deadline + ROUNDING_S - kept_s:
        deadline = batch.deadline + ROUNDING_S - kept_s
    wait = device.free_at - now
    end = now + (wait if wait > device.way_s else device.way_s)
    booked = device.booked
    if len(booked) == 1:
        return end + option.seconds(grown) * device.factors[option] <= deadline
    # Whoever is last must be in time, too: one look tells, mostly, where a device is full.
    factors = device.factors
    more = (option.seconds(grown) - option.seconds(batch.rows)) * factors[option]
    if end + device.booked_s + more > booked[-1].deadline + FULL_MARGIN_S - kept_s:
        return False
    behind = False
    for other in booked:
        if other is batch:
            end += option.seconds(batch.rows) * factors[option]
            if end + more > deadline:
                return False
            behind = True
        else:
            end += other.option.seconds(other.rows) * factors[other.option]
            if behind and end + more > other.deadline + ROUNDING_S - kept_s:
                return False
    return True


def opening(
    application: Application, query: Query, now: float, deadline: float, above: float
) -> tuple[Option, Device] | None:
    """The most valuable variant of more worth than ``above``, and the device that can start it first, behind all that
    is booked there; None where none would be in time."""
    slo_s, highest = application.bookable_s(now), above
    found: tuple[Option, Device, float] | None = None
    for group in application.groups:
        device, soonest = _soonest(group, now)
        if device is None:
            continue
        pressure = group.pressure(now, slo_s)
        level = min(int(application.felt(pressure, now) * LEVELS), LEVELS - 1)
        value, option = group.menu.ranked(level)[0]
        if value > highest:
            highest, found = value, (option, device, soonest)
    if found is None:
        return None
    # Mostly the best choice of all can be had; only otherwise is it worth looking at the others in turn.
    option, first, soonest = found
    seconds = option.seconds(query.rows) * first.factors[option]
    if now + soonest + seconds <= deadline and not (first.claims and robs(application, first, seconds, now)):
        return option, first
    return _next_best(application, query.rows, now, deadline, above)


def _longest_idle(kind: Kind, option: Option) -> Device:
    """The device that has been idle longest, or where that one is slow at the option, the quickest that is idle."""
    device = next(iter(kind.idle))
    return device if device.factors[option] <= SLOW else min(kind.idle, key=lambda other: other.factors[option])


def _first(kind: Kind, now: float) -> tuple[Device | None, float]:
    """The device that could start first, and in how many seconds."""
    best, soonest = None, INF
    for device in kind.devices:
        wait = device.free_at - now
        if wait < device.way_s:
            wait = device.way_s
        wait += device.booked_s
        if wait < soonest:
            best, soonest = device, wait
    return best, soonest


def _soonest(group: Group, now: float) -> tuple[Device | None, float]:
    """The device of the group that could start first, and in how many seconds."""
    best, soonest = None, INF
    for kind in group.kinds:
        if best is not None and soonest <= best.way_s:
            continue
        if kind.idle:
            best = _longest_idle(kind, group.menu.options[0])
            soonest = best.way_s
        else:
            device, wait = _first(kind, now)
            if wait < soonest:
                best, soonest = device, wait
    return best, soonest


def _next_best(
    application: Application, rows: int, now: float, deadline: float, above: float
) -> tuple[Option, Device] | None:
    """The most valuable variant that would be in time, and its device."""
    offers = []
    for group in application.groups:
        device, soonest = _soonest(group, now)
        if device is None or now + soonest > deadline:
            continue
        pressure = group.pressure(now, application.bookable_s(now))
        level = min(int(application.felt(pressure, now) * LEVELS), LEVELS - 1)
        ranked = group.menu.ranked(level)
        offers += [(value, i, option, device, soonest, group) for i, (value, option) in enumerate(ranked)]
    offers.sort(key=lambda offer: (-offer[0], offer[1]))
    fallback = None
    for value, _, option, device, soonest, group in offers:
        if value <= above:
            break
        if option.worth <= above:
            continue
        seconds = option.seconds(rows) * device.factors[option]
        if now + soonest + seconds > deadline:
            continue
        if device.claims and robs(application, device, seconds, now):
            if fallback is None:
                fallback = option, device
            device = _harmless(application, group, option, rows, deadline, now)
        if device is not None:
            return option, device
    return fallback


def robs(application: Application, device: Device, seconds: float, now: float) -> bool:
    """Whether so much more work on the device leaves another application without a device that could still take its
    next query in time."""
    wait = device.starts_in(now) + device.booked_s
    for other, limit_s in device.claims:
        if wait > limit_s or wait + seconds <= limit_s:
            continue
        if other.query_class.application == application.query_class.application:
            continue
        needed = other.reserve if now - other.refused_at < RESERVE_S else 1
        for host, its_limit_s in other.hosts:
            if host is not device and host.starts_in(now) + host.booked_s <= its_limit_s:
                needed -= 1
                if not needed:
                    break
        else:
            return True
    return False


def _harmless(
    application: Application, group: Group, option: Option, rows: int, deadline: float, now: float
) -> Device | None:
    """The device of the group that could start first without robbing another application; None: there is none."""
    best, soonest = None, INF
    for device in group.devices():
        wait = device.starts_in(now) + device.booked_s
        seconds = device.seconds(option, rows)
        if wait >= soonest or now + wait + seconds > deadline:
            continue
        if not (device.claims and robs(application, device, seconds, now)):
            best, soonest = device, wait
    return best


def anywhere(application: Application, rows: int, now: float, deadline: float) -> tuple[Option, Device] | None:
    """The most accurate variant that any device could run in time, behind all that is booked there. Devices differ in
    their ways and in how well they keep their times, and :func:`opening` looks at one of a kind."""
    best, worth = None, -INF
    for group, device in application.crowd:
        options = group.menu.options
        # Added up as when the batch is to start: what fits by one sum and not by another is booked again for ever.
        start = now + device.starts_in(now) + device.booked_s
        if options[0].worth <= worth or start + group.menu.least(rows) > deadline:
            continue
        for option in options:
            if option.worth <= worth:
                break
            if start + option.seconds(rows) * device.factors[option] <= deadline:
                best, worth = (option, device), option.worth
                break
    return best


def unscaled(application: Application, query: Query, now: float) -> tuple[Option, Device] | None:
    """The most accurate variant that an idle device would run in time if it kept to its profile."""
    best, worth = None, -INF
    for group, device in application.crowd:
        if device.booked or device.granted or device.away or device.free_at > now:
            continue
        for option in group.menu.options:
            if option.worth > worth and now + device.way_s + option.seconds(query.rows) <= query.deadline:
                best, worth = (option, device), option.worth
                break
    return best


def takeover(device: Device, behind: dict[Device, None], now: float) -> tuple[Option, Batch] | None:
    """A batch that waits behind others elsewhere and would be no less accurate on this idle device, started at once.

    ``behind``: where that may be; devices at which nothing waits any more are removed."""
    looks = 0
    for other in list(behind):
        if not other.booked or (not other.granted and not other.away and len(other.booked) < 2):
            del behind[other]
            continue
        looks += 1
        if looks > STEAL_LOOKS:
            return None
        # The first would start there next: it is the later ones that gain most.
        batch = other.booked[-1]
        menu = device.menus.get(batch.application.query_class)
        if menu is None or other is device:
            continue
        within = batch.deadline + ROUNDING_S - now - device.starts_in(now)
        option = menu.best(batch.rows, len(batch.queries), within, device.factors, 0)
        if option is not None and option.worth >= batch.option.worth:
            return option, batch
    return None
